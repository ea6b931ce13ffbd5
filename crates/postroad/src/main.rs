//! The `postroad` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let mut options = postroad_server::ServeOptions::default();
    let mut arguments = std::env::args().skip(2);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--config" => options.config_file = arguments.next().map(Into::into),
            "--data-dir" => options.data_dir = arguments.next().map(Into::into),
            _ => {}
        }
    }
    match postroad_server::serve(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
