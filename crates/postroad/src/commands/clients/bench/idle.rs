//! Connections that do nothing but stay open.

use postroad_client::Client;
use tokio::task::JoinSet;

use super::super::failure::{Failure, failed};
use super::BenchArgs;

/// How many connect at the same time.
const AT_ONCE: usize = 64;

/// Opens a connection for each of these numbers.
pub(super) async fn connect(
    args: &std::sync::Arc<BenchArgs>,
    numbers: impl Iterator<Item = u32>,
) -> Result<Vec<Client>, Failure> {
    let (mut connecting, mut clients) = (JoinSet::new(), Vec::new());
    for number in numbers {
        if connecting.len() == AT_ONCE {
            clients.extend(next(&mut connecting).await?);
        }
        let args = std::sync::Arc::clone(args);
        connecting.spawn_local(async move { args.client("idle", number).await });
    }
    while let Some(client) = next(&mut connecting).await? {
        clients.push(client);
    }
    Ok(clients)
}

async fn next(connecting: &mut JoinSet<Result<Client, Failure>>) -> Result<Option<Client>, Failure> {
    match connecting.join_next().await {
        None => Ok(None),
        Some(Ok(client)) => client.map(Some),
        Some(Err(_)) => Err(failed("a task of the load program failed", "report it")),
    }
}

/// Closes them.
pub(super) async fn close(clients: Vec<Client>) {
    for client in clients {
        // The figures are there; what a broker makes of a goodbye is not measured.
        let _ = client.close().await;
    }
}
