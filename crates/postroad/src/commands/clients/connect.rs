//! Which broker, and who we are there.

use std::time::Duration;

use clap::Args;
use postroad_client::{Client, ConnectOptions, Url, UrlError};

use super::failure::Failure;
use super::parse;

/// Where the broker is.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Connection")]
pub(super) struct ConnectArgs {
    /// The broker: amqp://[user[:password]@]host[:port]. An http address, as the operators' commands use, means the
    /// AMQP port 5672 of the same host.
    #[arg(long, env = "POSTROAD_URL", default_value = "amqp://127.0.0.1:5672", value_parser = url)]
    url: Url,
    /// The user, unless the address names one.
    #[arg(long, env = "POSTROAD_USER")]
    user: Option<String>,
    /// The password of the user.
    #[arg(long, env = "POSTROAD_PASSWORD", hide_env_values = true)]
    password: Option<String>,
    /// The container id: who owns a durable subscription.
    #[arg(long, value_name = "ID")]
    client_id: Option<String>,
    /// How long connecting, and every other question, may take.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse::duration)]
    connect_timeout: Duration,
}

fn url(text: &str) -> Result<Url, UrlError> {
    match text.split_once("://") {
        Some(("http" | "https", rest)) => {
            let mut url: Url = rest.parse()?;
            url.port = 5672;
            Ok(url)
        }
        _ => text.parse(),
    }
}

impl ConnectArgs {
    /// The broker, without user and password.
    pub(super) fn broker(&self) -> String {
        self.url.to_string()
    }

    pub(super) fn options(&self) -> ConnectOptions {
        let mut url = self.url.clone();
        if url.user.is_none() && self.user.is_some() {
            url.user.clone_from(&self.user);
            url.password.clone_from(&self.password);
        }
        let mut options = ConnectOptions::new(url);
        options.timeout = self.connect_timeout;
        if let Some(id) = &self.client_id {
            options.container_id.clone_from(id);
        }
        options
    }

    pub(super) async fn connect(&self) -> Result<Client, Failure> {
        Ok(Client::connect(&self.options()).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_rest_interface_name_the_host() {
        assert_eq!(url("http://h:8161/x").map(|url| url.authority()), Ok("h:5672".to_owned()));
        assert_eq!(url("amqp://h:99").map(|url| url.authority()), Ok("h:99".to_owned()));
        assert!(url("mqtt://h").is_err());
    }
}
