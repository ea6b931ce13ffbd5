//! Headers, ANONYMOUS and PLAIN.

use bytes::Bytes;
use postroad_amqp_codec::Symbol;
use postroad_amqp_codec::frame::ProtocolHeader;
use postroad_amqp_codec::performative::Open;
use postroad_amqp_codec::sasl::{
    SaslBody, SaslChallenge, SaslCode, SaslInit, SaslMechanisms, SaslOutcome, SaslResponse,
};

use super::pair::{ANYONE, Pair, named};
use super::script::Script;
use crate::{
    AcceptSasl, ApiMisuse, Connection, Error, Event, InitiateSasl, OpenReply, PeerIncompatible,
    PeerMisbehaved,
};

fn plain() -> InitiateSasl {
    InitiateSasl::Plain { authzid: "other".to_owned(), user: "ann".to_owned(), password: "secret".to_owned() }
}

#[test]
fn plain_lets_in_and_keeps_out() {
    for code in [SaslCode::Ok, SaslCode::Auth] {
        let mut pair = Pair::new(named("client"), named("server"), plain());
        pair.run();
        let event = pair.server.event();
        assert!(!format!("{event:?}").contains("secret"));
        let Event::SaslPlain { authzid, user, password } = event else { panic!() };
        assert_eq!((&authzid[..], &user[..], password.as_str()), ("other", "ann", "secret"));
        pair.server.engine.sasl_outcome(code).unwrap();
        assert_eq!(pair.server.engine.sasl_outcome(code), Err(ApiMisuse::NoSaslQuestion));
        pair.run();
        if code == SaslCode::Ok {
            assert!(matches!(pair.server.event(), Event::RemoteOpen(_)));
            pair.server.engine.open(OpenReply::default()).unwrap();
            pair.run();
            assert!(matches!(pair.client.event(), Event::RemoteOpen(_)));
        } else {
            for side in [&mut pair.client, &mut pair.server] {
                let Event::Failed(error) = side.event() else { panic!() };
                assert_eq!(error, PeerIncompatible::Authentication(SaslCode::Auth).into());
                assert!(side.engine.is_finished());
            }
        }
    }
}

#[test]
fn anonymous_says_who_it_claims_to_be() {
    let trace = "me@here".to_owned();
    let mut pair = Pair::new(named("client"), named("server"), InitiateSasl::Anonymous { trace });
    pair.run();
    let Event::SaslAnonymous { trace } = pair.server.event() else { panic!() };
    assert_eq!(trace, "me@here");
    pair.server.engine.sasl_outcome(SaslCode::Ok).unwrap();
    pair.run();
    assert!(matches!(pair.server.event(), Event::RemoteOpen(_)));
}

#[test]
fn pipelined_bytes_wait_for_the_outcome() {
    let mut script = Script::accept(named("server"), ANYONE);
    script.raw(&ProtocolHeader::SASL.to_bytes());
    let init = SaslInit { mechanism: Symbol::from_static("ANONYMOUS"), ..SaslInit::default() };
    script.send_sasl(&init);
    script.raw(&ProtocolHeader::AMQP.to_bytes());
    script.send(0, &Open::default());
    assert!(matches!(script.event(), Event::SaslAnonymous { .. }));
    script.no_event();
    assert!(script.left_over() > 8);
    script.engine.sasl_outcome(SaslCode::Ok).unwrap();
    script.raw(b"");
    assert!(matches!(script.event(), Event::RemoteOpen(_)));
    script.expect_header(ProtocolHeader::SASL);
    let SaslBody::Mechanisms(offer) = script.expect_sasl() else { panic!() };
    assert_eq!(offer.mechanisms, ["PLAIN", "ANONYMOUS"]);
    assert!(matches!(script.expect_sasl(), SaslBody::Outcome(SaslOutcome { code: SaslCode::Ok, .. })));
    script.expect_header(ProtocolHeader::AMQP);
}

#[test]
fn plain_without_a_first_response_is_challenged() {
    let mut script = Script::accept(named("server"), ANYONE);
    script.raw(&ProtocolHeader::SASL.to_bytes());
    script.send_sasl(&SaslInit { mechanism: Symbol::from_static("PLAIN"), ..SaslInit::default() });
    script.expect_header(ProtocolHeader::SASL);
    script.expect_sasl();
    assert!(matches!(script.expect_sasl(), SaslBody::Challenge(_)));
    script.send_sasl(&SaslResponse { response: Bytes::from_static(b"\0ann\0secret") });
    assert!(matches!(script.event(), Event::SaslPlain { .. }));
}

#[test]
fn client_answers_a_challenge() {
    let mut script = Script::over(Connection::initiate(named("client"), plain(), 0));
    script.expect_header(ProtocolHeader::SASL);
    script.raw(&ProtocolHeader::SASL.to_bytes());
    script.send_sasl(&SaslMechanisms { mechanisms: vec![Symbol::from_static("PLAIN")] });
    script.expect_sasl();
    script.send_sasl(&SaslChallenge::default());
    let SaslBody::Response(response) = script.expect_sasl() else { panic!() };
    assert_eq!(response.response, "other\0ann\0secret");
    script.expect_nothing();
}

#[test]
fn client_needs_its_mechanism() {
    let mut script = Script::over(Connection::initiate(named("client"), plain(), 0));
    script.raw(&ProtocolHeader::SASL.to_bytes());
    script.send_sasl(&SaslMechanisms { mechanisms: vec![Symbol::from_static("GSSAPI")] });
    let Event::Failed(error) = script.event() else { panic!() };
    assert_eq!(error, PeerIncompatible::NoMechanism("GSSAPI".to_owned()).into());
}

#[test]
fn mechanism_must_be_offered() {
    let only_plain = AcceptSasl { anonymous: false, plain: true, skip: false };
    let mut script = Script::accept(named("server"), only_plain);
    script.raw(&ProtocolHeader::SASL.to_bytes());
    script.send_sasl(&SaslInit { mechanism: Symbol::from_static("ANONYMOUS"), ..SaslInit::default() });
    let Event::Failed(Error::PeerIncompatible(error)) = script.event() else { panic!() };
    assert_eq!(error, PeerIncompatible::Mechanism("ANONYMOUS".to_owned()));
    script.expect_header(ProtocolHeader::SASL);
    script.expect_sasl();
    assert!(matches!(script.expect_sasl(), SaslBody::Outcome(SaslOutcome { code: SaslCode::Auth, .. })));
    script.expect_nothing();
}

#[test]
fn plain_credentials_have_three_parts() {
    for wrong in [&b"ann"[..], b"\0ann", b"\0a\0b\0c", b"\0\xff\0b"] {
        let mut script = Script::accept(named("server"), ANYONE);
        script.raw(&ProtocolHeader::SASL.to_bytes());
        let initial_response = Some(Bytes::from_static(wrong));
        let mechanism = Symbol::from_static("PLAIN");
        script.send_sasl(&SaslInit { mechanism, initial_response, hostname: None });
        let Event::Failed(error) = script.event() else { panic!() };
        assert_eq!(error, PeerMisbehaved::SaslPlainMalformed.into());
        assert!(script.engine.is_finished());
    }
}

#[test]
fn wrong_headers_are_told_the_right_one() {
    let no_skip = AcceptSasl { anonymous: true, plain: false, skip: false };
    let no_sasl = AcceptSasl { anonymous: false, plain: false, skip: true };
    let cases: [(&[u8], AcceptSasl, ProtocolHeader); 6] = [
        (b"GET / HTTP/1.1\r\n", ANYONE, ProtocolHeader::SASL),
        (b"AMQP\x00\x00\x09\x01", ANYONE, ProtocolHeader::SASL),
        (b"AMQP\x02\x01\x00\x00", ANYONE, ProtocolHeader::SASL),
        (b"AMQP\x00\x01\x00\x00", no_skip, ProtocolHeader::SASL),
        (b"AMQP\x03\x01\x00\x00", no_sasl, ProtocolHeader::AMQP),
        (b"AMQP\x00\x01\x01\x00", no_sasl, ProtocolHeader::AMQP),
    ];
    for (sent, sasl, told) in cases {
        let mut script = Script::accept(named("server"), sasl);
        script.raw(sent);
        let Event::Failed(error) = script.event() else { panic!() };
        assert!(matches!(error, Error::PeerIncompatible(PeerIncompatible::Header(_))), "{error}");
        script.expect_header(told);
        script.expect_nothing();
        assert!(script.engine.is_finished() && script.left_over() == 0);
    }
}

#[test]
fn client_refuses_another_header() {
    let mut script = Script::over(Connection::initiate(named("client"), InitiateSasl::Skip, 0));
    script.raw(&ProtocolHeader::SASL.to_bytes());
    let Event::Failed(error) = script.event() else { panic!() };
    assert_eq!(error, PeerIncompatible::Header(ProtocolHeader::SASL.to_bytes()).into());
    assert!(script.engine.is_finished());
}

#[test]
fn layers_do_not_mix() {
    let mut script = Script::accept(named("server"), ANYONE);
    script.raw(&ProtocolHeader::SASL.to_bytes());
    script.send(0, &Open::default());
    let Event::Failed(error) = script.event() else { panic!() };
    assert_eq!(error, PeerMisbehaved::WrongLayer.into());

    let mut script = Script::open(named("server"));
    script.send_sasl(&SaslInit::default());
    script.expect_close("amqp:connection:framing-error");

    let mut script = Script::accept(named("server"), ANYONE);
    script.raw(&ProtocolHeader::SASL.to_bytes());
    script.send_sasl(&SaslOutcome::default());
    let Event::Failed(error) = script.event() else { panic!() };
    assert_eq!(error, PeerMisbehaved::SaslOutOfTurn.into());
}
