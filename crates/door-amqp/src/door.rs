//! The door: one client connection between its socket's bytes and the engine's commands and effects.

use crate::config::{DoorConfig, SOLE_CONNECTION};
use crate::links::Links;
use crate::outgoing::Outgoing;
use crate::producer::{AcceptedRun, Piece};
use crate::refusal::client_id_in_use;
use crate::source::Ends;
use crate::staging::Staging;
use bytes::BytesMut;
use postroad_amqp::{Connection, Event, OpenReply, Output, Password, SessionId};
use postroad_amqp_codec::performative::{Open, Role};
use postroad_amqp_codec::sasl::SaslCode;
use postroad_amqp_codec::{AmqpError, Fields};
use postroad_engine::{Client, Command, ConnId, Effect};
use postroad_model::refusal::Refusal;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of answers that a client may leave unread before nothing more is read from it. Whoever reads has far fewer.
const CLOGGED_FROM: usize = 256 * 1024;
/// The user of a client that gave no name.
const ANONYMOUS: &str = "anonymous";

/// A client's credentials, to be checked outside (SASL PLAIN; part 5, section 5.3). Answer with
/// [`Door::login_result`].
#[derive(Debug)]
pub struct LoginRequest {
    /// Who it says it is.
    pub user: String,
    /// What is to prove it.
    pub password: Password,
}

/// What came of a login (part 5, section 5.3.3.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Login {
    /// The client is who it says.
    Accepted,
    /// It is not, or may not come in.
    Refused,
    /// That can't be checked now.
    Unavailable,
}

/// How far the client has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The engine does not know it.
    Fresh,
    /// The engine has been told of it, or has it.
    Known,
    /// The engine has been told that it left, or has refused it.
    Over,
}

/// One client connection. See the crate's page for the loop around it.
#[derive(Debug)]
pub struct Door {
    pub(crate) conn: ConnId,
    pub(crate) config: Arc<DoorConfig>,
    pub(crate) amqp: Connection,
    pub(crate) links: Links,
    /// Durable subscriptions of detached links that are to end with their session or with the connection.
    pub(crate) lingering: BTreeMap<String, (SessionId, Ends)>,
    /// Accepted deliveries that are told with the next ones.
    pub(crate) accepted: Option<AcceptedRun>,
    /// Room for messages of which pieces are to come.
    pub(crate) staging: Arc<Staging>,
    /// It has sent large messages: the engine's answers are looked at for them.
    pub(crate) sends_large: bool,
    /// Where the heads of deliveries are written.
    pub(crate) scratch: BytesMut,
    stage: Stage,
    peer_address: String,
    user: String,
    /// The client id, once it has opened.
    client: String,
    sole: bool,
    request: Option<LoginRequest>,
    /// Messages on their way to the client.
    pub(crate) outgoing: Outgoing,
}

impl Door {
    /// A connection that was just accepted. `conn` is its number, never used before while the broker runs;
    /// `peer_address` is for people; `now_ms` as everywhere here is a monotonic clock in milliseconds.
    #[must_use]
    pub fn new(conn: ConnId, config: Arc<DoorConfig>, peer_address: String, now_ms: u64) -> Self {
        Self {
            conn,
            amqp: Connection::accept(config.protocol(), config.sasl, now_ms),
            links: Links::default(),
            lingering: BTreeMap::new(),
            accepted: None,
            staging: config.connection_staging(),
            config,
            sends_large: false,
            scratch: BytesMut::new(),
            stage: Stage::Fresh,
            peer_address,
            user: String::from(ANONYMOUS),
            client: String::new(),
            sole: false,
            request: None,
            outgoing: Outgoing::default(),
        }
    }

    /// Takes what the client sent; what it asks of the engine is appended to `commands`. The rest of a frame stays in
    /// `bytes`. While a login waits for its answer nothing is taken: call it again after [`Door::login_result`].
    pub fn input(&mut self, now_ms: u64, bytes: &mut BytesMut, commands: &mut Vec<Command>) {
        while self.amqp.handle_input(now_ms, bytes) {
            self.pump(commands);
        }
        self.pump(commands);
    }

    /// Takes an effect of the engine for this connection; others are ignored, as are effects for links that have gone.
    pub fn effect(&mut self, effect: Effect, commands: &mut Vec<Command>) {
        match effect {
            Effect::Published { conn, link, first, last, outcome } if conn == self.conn => {
                self.published(link, (first, last), &outcome);
            }
            Effect::Deliver(delivery) if delivery.conn == self.conn => self.deliver(&delivery, commands),
            Effect::Settled { conn, link, first, last, outcome } if conn == self.conn => {
                self.settled(link, first, last, &outcome);
            }
            Effect::ProducerCredit { conn, link, limit } if conn == self.conn => {
                self.producer_credit(link, limit);
            }
            Effect::Drained { conn, link } if conn == self.conn => self.drained(link, commands),
            other => self.rare_effect(other, commands),
        }
        self.pump(commands);
    }

    /// Effects about connections and links, not about messages.
    fn rare_effect(&mut self, effect: Effect, commands: &mut Vec<Command>) {
        match effect {
            Effect::Connected { conn } if conn == self.conn => self.connected(),
            Effect::ConnectRefused { conn, refusal } if conn == self.conn => self.connect_refused(&refusal),
            Effect::ProducerOpened { conn, link, producer, resolved, credit } if conn == self.conn => {
                self.producer_opened(link, producer, resolved, credit, commands);
            }
            Effect::ConsumerOpened { conn, link, taker, resolved } if conn == self.conn => {
                self.consumer_opened(link, taker, resolved, commands);
            }
            Effect::LinkRefused { conn, link, refusal } if conn == self.conn => {
                self.link_refused(link, &refusal);
            }
            Effect::LinkClosed { conn, link } | Effect::SubscriptionDeleted { conn, link }
                if conn == self.conn =>
            {
                self.link_closed(link);
            }
            Effect::DetachLink { conn, link, refusal } if conn == self.conn => {
                self.detach_link(link, &refusal, commands);
            }
            Effect::SubscriptionFound { conn, link, address, settings } if conn == self.conn => {
                self.subscription_found(link, address, &settings, commands);
            }
            _ => {}
        }
    }

    /// Credentials that are to be checked, once; then [`Door::login_result`] is to be called.
    pub fn poll_login(&mut self) -> Option<LoginRequest> {
        self.request.take()
    }

    /// The answer to [`Door::poll_login`]. Then call [`Door::input`] again with what was left of the input. Nothing
    /// happens if no login waits.
    pub fn login_result(&mut self, login: Login, commands: &mut Vec<Command>) {
        let code = match login {
            Login::Accepted => SaslCode::Ok,
            Login::Refused => SaslCode::Auth,
            Login::Unavailable => SaslCode::SysTemp,
        };
        let _ = self.amqp.sasl_outcome(code);
        self.pump(commands);
    }

    /// Appends everything that is ready for the client to `out`. Call it after a batch of effects, not after each: what
    /// follows on goes out as ranges. Call it when everything from the last call is written, and again then: the engine
    /// is told, and goes on sending.
    pub fn output(&mut self, out: &mut Output, commands: &mut Vec<Command>) {
        if out.is_empty()
            && let Some(bytes) = self.outgoing.take_written()
            && self.stage == Stage::Known
        {
            commands.push(Command::Written { conn: self.conn, bytes });
        }
        self.flush_accepted();
        self.amqp.poll_output(out);
        self.outgoing.polled(self.amqp.waiting_bytes());
    }

    /// Whether so many answers to the client are not written that nothing more should be read from it.
    #[must_use]
    pub fn is_clogged(&self) -> bool {
        self.amqp.answers_waiting() >= CLOGGED_FROM
    }

    /// When [`Door::deadline`] is to be called, if nothing happens before; `None`: never.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        self.amqp.next_deadline()
    }

    /// Does what is due at `now_ms`: heartbeats, and giving up a client that is silent.
    pub fn deadline(&mut self, now_ms: u64, commands: &mut Vec<Command>) {
        self.amqp.handle_deadline(now_ms);
        self.pump(commands);
    }

    /// The socket is gone: tells the engine, once. To be called for every connection in the end, however it ended.
    pub fn lost(&mut self, commands: &mut Vec<Command>) {
        self.leave_connection(false, commands);
    }

    /// Whether the connection is over: write what is left of the output, and close the socket.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.amqp.is_finished()
    }

    /// Ends the connection by the broker's decision, such as its stop: `close` with this error, usually
    /// `amqp:connection:forced`. The client's answer, or 5 seconds, make [`Door::is_closed`] true.
    pub fn shut_down(&mut self, error: AmqpError) {
        self.flush_accepted();
        // Fails only when it is closed already.
        let _ = self.amqp.close(Some(error));
    }

    /// The client's address and its id, for the log.
    pub(crate) fn who(&self) -> (&str, &str) {
        (&self.peer_address, &self.client)
    }

    fn pump(&mut self, commands: &mut Vec<Command>) {
        while let Some(event) = self.amqp.poll_event() {
            self.event(event, commands);
        }
    }

    fn event(&mut self, event: Event, commands: &mut Vec<Command>) {
        match event {
            Event::Outcome { link, first, last, state, settled } => {
                self.outcome(link, (first, last), state.as_deref(), settled, commands);
            }
            Event::Credit { link, limit, drain, .. } => self.credit(link, limit, drain, commands),
            Event::Sendable { link } => self.sendable(link, commands),
            Event::RemoteAttach { link, session, attach } => match attach.role {
                Role::Sender => self.attach_producer(link, session, &attach, commands),
                Role::Receiver => self.attach_consumer(link, session, &attach, commands),
            },
            Event::Detach { link, closed, .. } => self.on_detach(link, closed, commands),
            Event::LinkFailed { link, error } => {
                self.report_link(&error);
                self.on_link_failed(link, commands);
            }
            Event::End { session, .. } => self.on_end(session, commands),
            Event::SessionFailed { session, error } => {
                self.report_session(&error);
                self.on_end(session, commands);
            }
            Event::RemoteOpen(open) => self.on_open(&open, commands),
            Event::SaslAnonymous { .. } => self.login_result(Login::Accepted, commands),
            Event::SaslPlain { authzid, user, password } => self.on_plain(&authzid, user, password, commands),
            Event::Close { .. } => self.leave_connection(true, commands),
            Event::Failed(error) => {
                self.report_failed(&error);
                self.leave_connection(false, commands);
            }
            // We begin no sessions and attach no links; the rest needs no answer.
            Event::RemoteBegin { .. }
            | Event::Begun { .. }
            | Event::Attached { .. }
            | Event::SenderFlow { .. }
            | Event::SenderState { .. } => {}
            transfer @ Event::Transfer { .. } => {
                if let Some(piece) = Piece::of(transfer) {
                    self.transfer(&piece, commands);
                }
            }
        }
    }

    fn on_plain(&mut self, authzid: &str, user: String, password: Password, commands: &mut Vec<Command>) {
        // Nobody acts as somebody else here.
        if !authzid.is_empty() && authzid != user {
            return self.login_result(Login::Refused, commands);
        }
        self.user.clone_from(&user);
        self.request = Some(LoginRequest { user, password });
    }

    fn on_open(&mut self, open: &Open, commands: &mut Vec<Command>) {
        self.sole = open.desired_capabilities.contains(&SOLE_CONNECTION);
        self.stage = Stage::Known;
        self.client.clone_from(&open.container_id);
        let client = Client {
            id: open.container_id.clone(),
            user: self.user.clone(),
            address: self.peer_address.clone(),
            sole: self.sole,
        };
        commands.push(Command::Connect { conn: self.conn, client });
    }

    /// The engine takes the client (AM-1).
    fn connected(&mut self) {
        let offered_capabilities = if self.sole { vec![SOLE_CONNECTION] } else { Vec::new() };
        // Fails only when the client has closed meanwhile.
        let _ = self.amqp.open(OpenReply { offered_capabilities, properties: Fields::new() });
    }

    /// The engine refuses the client (AM-2).
    fn connect_refused(&mut self, refusal: &Refusal) {
        self.stage = Stage::Over;
        self.report_refused("a connection", refusal);
        let mut properties = Fields::new();
        properties.insert("amqp:connection-establishment-failed", true);
        let _ = self.amqp.refuse_open(properties, client_id_in_use(refusal));
    }

    fn leave_connection(&mut self, orderly: bool, commands: &mut Vec<Command>) {
        if self.stage == Stage::Known {
            self.leave_all(orderly, commands);
            commands.push(Command::Disconnect { conn: self.conn });
        }
        self.stage = Stage::Over;
        self.links = Links::default();
    }
}
