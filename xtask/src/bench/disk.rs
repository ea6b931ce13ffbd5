//! The disk under a benchmark: a real one, or nothing that is said of durable messages means anything.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::run;

/// File systems whose files are memory.
const IN_MEMORY: [&str; 4] = ["tmpfs", "ramfs", "devtmpfs", "hugetlbfs"];

/// Below this no disk syncs, in microseconds.
const TOO_FAST: f64 = 15.0;

/// Refuses a folder that lies in memory; gives the name of its file system.
pub(crate) fn refuse_memory(folder: &Path) -> Result<String, String> {
    let folder = folder.canonicalize().map_err(|e| format!("{}: {e}", folder.display()))?;
    let mounts =
        std::fs::read_to_string("/proc/self/mounts").map_err(|e| format!("/proc/self/mounts: {e}"))?;
    let Some(kind) = file_system(&mounts, &folder) else {
        return Err(format!("the file system of {} is not known", folder.display()));
    };
    if IN_MEMORY.contains(&kind) {
        return Err(format!(
            "{} lies in memory ({kind}), where a sync costs nothing and the figures mean nothing: \
             give --data-dir a folder on a disk",
            folder.display()
        ));
    }
    Ok(kind.to_owned())
}

/// The kind of the mount that holds a folder: of the mounts above it the longest, and of equal ones the last.
fn file_system<'a>(mounts: &'a str, folder: &Path) -> Option<&'a str> {
    let mut found: Option<(usize, &str)> = None;
    for line in mounts.lines() {
        let mut fields = line.split(' ').skip(1);
        let (Some(place), Some(kind)) = (fields.next(), fields.next()) else { continue };
        // Spaces in names are written as \040.
        let place = place.replace("\\040", " ");
        if folder.starts_with(&place) && found.is_none_or(|(length, _)| place.len() >= length) {
            found = Some((place.len(), kind));
        }
    }
    found.map(|(_, kind)| kind)
}

/// What the disk alone does, as `postroad-limits writer` measures it.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    /// One message of 1 KiB at a time, written and synced; microseconds at the median.
    pub(crate) sync_us: f64,
    /// The same at the 99th percentile.
    pub(crate) sync_p99_us: f64,
    /// Messages of 1 KiB a second, 500 a sync.
    pub(crate) messages_per_second: f64,
    /// Both reports, as they came.
    pub(crate) reports: [Value; 2],
}

/// Measures the disk under `folder`.
pub(crate) fn measure(limits: &Path, folder: &Path, seconds: u64) -> Result<Disk, String> {
    let one = write(limits, folder, 1, seconds)?;
    let many = write(limits, folder, 500, seconds)?;
    let number = |report: &Value, pointer: &str| {
        report
            .pointer(pointer)
            .and_then(Value::as_f64)
            .ok_or_else(|| format!("the writer does not say {pointer}"))
    };
    let disk = Disk {
        sync_us: number(&one, "/safe_us/p50")?,
        sync_p99_us: number(&one, "/safe_us/p99")?,
        messages_per_second: number(&many, "/messages_per_second")?,
        reports: [one, many],
    };
    if disk.sync_us < TOO_FAST {
        return Err(format!(
            "a write and its sync take {:.0} us in {}: no disk is that fast, so the figures would mean nothing",
            disk.sync_us,
            folder.display()
        ));
    }
    Ok(disk)
}

fn write(limits: &Path, folder: &Path, batch: u32, seconds: u64) -> Result<Value, String> {
    let data = folder.join("writer");
    let mut writer = Command::new(limits);
    writer.args(["writer", "--json", "--size", "1100", "--batch", &batch.to_string()]);
    writer.args(["--seconds", &seconds.to_string(), "--data-dir"]).arg(&data);
    let report = run::output(&mut writer);
    std::fs::remove_dir_all(&data).map_err(|e| format!("{}: {e}", data.display()))?;
    serde_json::from_str(&report?).map_err(|e| format!("the writer's report can't be read: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_that_holds_a_folder_is_found() {
        let mounts = "rootfs / rootfs rw 0 0\n/dev/vda / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n\
                      /dev/vdb /tmp/on\\040disk xfs rw 0 0\n";
        let of = |folder: &str| file_system(mounts, Path::new(folder));
        assert_eq!(of("/var/tmp"), Some("ext4"));
        assert_eq!(of("/tmp/x"), Some("tmpfs"));
        assert_eq!(of("/tmpfile"), Some("ext4"));
        assert_eq!(of("/tmp/on disk/x"), Some("xfs"));
        assert_eq!(file_system("", Path::new("/")), None);
    }

    #[test]
    fn memory_is_refused() {
        if Path::new("/dev/shm").is_dir() {
            assert!(refuse_memory(Path::new("/dev/shm")).unwrap_err().contains("lies in memory"));
        }
        assert!(refuse_memory(Path::new("/no/such/folder")).is_err());
    }
}
