//! `postroad-hot-paths`: runs one path of the broker for instruction counts, or lists them.
//!
//! **What it is.** A name and a count in, that much work done, nothing printed: what counts is what a tool like callgrind
//! counts meanwhile. Without arguments it lists the paths, a line each: name, tab, what one unit is.
//!
//! **What it knows.** The command line. **What it must never know.** What a path does: that is the library's.

use std::io::{self, Write};
use std::process::ExitCode;

use postroad_bench::HotPath;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let path_and_count = match arguments.as_slice() {
        [] => return list(),
        [name, count] => HotPath::find(name).zip(count.parse().ok()),
        _ => None,
    };
    let Some((path, count)) = path_and_count else {
        let _ = writeln!(io::stderr(), "usage: postroad-hot-paths [NAME COUNT]");
        return ExitCode::from(2);
    };
    path.run(count);
    ExitCode::SUCCESS
}

fn list() -> ExitCode {
    let mut out = io::stdout().lock();
    let all = HotPath::ALL.iter().try_for_each(|path| writeln!(out, "{}\t{}", path.name, path.unit));
    if all.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
