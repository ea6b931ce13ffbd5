//! `postroad demo`: a small network of real brokers in this process, with real clients over it.

use postroad_amqp_codec::Value;
use postroad_amqp_codec::message::{Body, Header, Message};
use postroad_client::{Client, ConnectOptions, NodeKind, Receiver, ReceiverOptions, SenderOptions, Url};
use postroad_config::{ChannelDefinition, Config, JoinDefinition, Listener, Protocol};
use postroad_model::settings::{ChannelSettings, JoinSettings};
use postroad_server::{Broker, EngineThread};
use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

/// Channels of the example.
const CHANNELS: usize = 10;
/// The hop limit of its first join.
const FIRST_HOPS: u8 = 5;
/// How long an event may take through all channels before the demonstration gives up.
const PATIENCE: Duration = Duration::from_secs(10);

/// What can be shown.
#[derive(Clone, Copy, Debug, clap::Subcommand)]
pub(crate) enum Demo {
    /// Ten channels joined in a row; the first join lets an event cross five more stores.
    Joins,
}

impl Demo {
    /// Runs the demonstration and prints what happened.
    ///
    /// # Errors
    /// If the broker can't start on free ports, or something else happened than should.
    pub(crate) fn run(self) -> Result<(), Box<dyn Error>> {
        match self {
            Self::Joins => joins(),
        }
    }
}

fn joins() -> Result<(), Box<dyn Error>> {
    let folder = Folder::new()?;
    let broker = Broker::start(&configuration(&folder.0), EngineThread::default())?;
    let address = broker
        .addresses()
        .iter()
        .find(|(protocol, _)| *protocol == Protocol::Amqp)
        .map(|(_, address)| *address)
        .ok_or("the broker serves no AMQP")?;
    say("One broker, ten channels, nine joins in a row:");
    say(&format!("  channel0 -({FIRST_HOPS})-> channel1 -(10)-> channel2 -(10)-> ... -(10)-> channel9"));
    say("A join's number says how many stores may lie between its source and the last one reached.");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let url = format!("amqp://{address}");
    let arrived = runtime.block_on(async { tokio::time::timeout(PATIENCE, publish_and_watch(&url)).await });
    broker.stop()?;
    let arrived = arrived.map_err(|_| "the event did not come through in time")??;
    report(&arrived);
    let expected: Vec<usize> =
        (0..CHANNELS).map(|at| usize::from(at <= usize::from(FIRST_HOPS) + 1)).collect();
    if arrived == expected {
        Ok(())
    } else {
        Err(format!("expected {expected:?} events, got {arrived:?}").into())
    }
}

/// The configuration file of the example, as values.
fn configuration(folder: &std::path::Path) -> Config {
    let mut config = Config::development("demo");
    config.development = false;
    config.data_dir = folder.join("data");
    config.listeners = vec![Listener { protocol: Protocol::Amqp, host: "127.0.0.1".into(), port: 0 }];
    config.channels = (0..CHANNELS)
        .map(|at| ChannelDefinition {
            name: channel(at),
            settings: ChannelSettings::default(),
            named_objects: Vec::new(),
        })
        .collect();
    config.joins = (1..CHANNELS)
        .map(|at| {
            let (source, destination) = (channel(at - 1), channel(at));
            let mut settings = JoinSettings { source, destination, ..JoinSettings::default() };
            if at == 1 {
                settings.max_hops = FIRST_HOPS;
            }
            JoinDefinition { name: format!("{}->{}", channel(at - 1), channel(at)), settings, enabled: None }
        })
        .collect();
    config
}

fn channel(at: usize) -> String {
    format!("channel{at}")
}

/// Subscribes to every channel, publishes one event to the first, and counts what each subscriber got.
async fn publish_and_watch(url: &str) -> Result<Vec<usize>, Box<dyn Error>> {
    let url: Url = url.parse()?;
    let subscriber = Client::connect(&ConnectOptions::new(url.clone())).await?;
    let mut receivers = Vec::new();
    for at in 0..CHANNELS {
        let options = ReceiverOptions { kind: Some(NodeKind::Topic), ..ReceiverOptions::default() };
        receivers.push(subscriber.receiver(&channel(at), options).await?);
    }
    let publisher = Client::connect(&ConnectOptions::new(url)).await?;
    let options = SenderOptions { kind: Some(NodeKind::Topic), ..SenderOptions::default() };
    let sender = publisher.sender(&channel(0), options).await?;
    let message = Message {
        header: Some(Header { durable: true, ..Header::default() }),
        body: Body::Value(Value::String("an event".into())),
        ..Message::default()
    };
    let outcome = sender.send(&message).await?;
    say(&format!("One event was published to channel0: {outcome:?}."));
    // The last store that it may reach has it after all before it; then nothing is on the way any more.
    let last = usize::from(FIRST_HOPS) + 1;
    let mut arrived = vec![0; CHANNELS];
    for at in (0..=last).rev() {
        arrived[at] += count_one(&receivers[at]).await?;
    }
    for (at, receiver) in receivers.iter().enumerate() {
        receiver.drain(1)?;
        while receiver.recv().await?.is_some() {
            arrived[at] += 1;
        }
    }
    publisher.close().await?;
    subscriber.close().await?;
    Ok(arrived)
}

async fn count_one(receiver: &Receiver) -> Result<usize, Box<dyn Error>> {
    Ok(usize::from(receiver.recv().await?.is_some()))
}

fn report(arrived: &[usize]) {
    for (at, count) in arrived.iter().enumerate() {
        let what = match at {
            0 => "the source",
            _ if at <= usize::from(FIRST_HOPS) => "between",
            _ if at == usize::from(FIRST_HOPS) + 1 => "the last one reached",
            _ => "not reached: the hop budget was used up",
        };
        say(&format!("  channel{at}: {count} event{}   {what}", if *count == 1 { " " } else { "s" }));
    }
}

/// A folder for the demonstration's data, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> std::io::Result<Self> {
        let path = std::env::temp_dir().join(format!("postroad-demo-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(folder = %self.0.display(), %error, "the demonstration's data can't be removed");
        }
    }
}

#[allow(clippy::print_stdout)] // the demonstration is what it prints
fn say(text: &str) {
    println!("{text}");
}
