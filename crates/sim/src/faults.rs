//! What goes wrong: crashes with torn and lost writes, failing writes and syncs, cut connections, clocks that jump, bits
//! that flip, a disk that is full.

use crate::check::Violation;
use crate::world::World;
use postroad_journal::{Disk, MemFault};

/// Something goes wrong now, or soon.
///
/// # Errors
/// A broken promise.
pub fn strike(world: &mut World) -> Result<(), Violation> {
    match world.random.below(16) {
        0 => world.crash(),
        1 => world.stop(),
        2..=4 => {
            let at = world.random.range(1, 60);
            world.note(|| format!("the process will die in disk operation {at} from now"));
            world.disk.inject(MemFault::CrashAt(at));
            Ok(())
        }
        5 => {
            let at = world.random.range(1, 60);
            let sync = world.random.one_in(2);
            world.disk.inject(if sync { MemFault::FailSync(at) } else { MemFault::FailWrite(at) });
            Ok(())
        }
        6 => world.flip(),
        7 => {
            jump(world);
            Ok(())
        }
        8 => {
            fill(world);
            Ok(())
        }
        13 | 14 => {
            if world.shelf.is_empty() || (world.shelf.len() < 3 && world.random.one_in(3)) {
                world.back_up();
                return Ok(());
            }
            world.change_folders()
        }
        _ => {
            let seat = world.random.index(world.seats.len());
            world.lose(seat);
            Ok(())
        }
    }
}

/// The disk is full from here on, or no longer.
fn fill(world: &mut World) {
    let there = world.disk.list().unwrap_or_default();
    let used: usize =
        there.iter().filter_map(|name| world.disk.content(name)).map(|content| content.len()).sum();
    let full = world.random.one_in(2);
    // Full at once, or soon.
    let left = if world.random.one_in(2) { 0 } else { world.random.below(100_000) };
    world.note(|| if full { format!("the disk has {left} bytes left") } else { "the disk has room".into() });
    world.disk.set_capacity(full.then_some(used as u64 + left));
}

/// The wall clock jumps, back or ahead; the other one goes on.
fn jump(world: &mut World) {
    let by = world.random.range(1, 20_000);
    let back = world.random.one_in(2);
    world.now.wall = if back { world.now.wall.saturating_sub(by) } else { world.now.wall + by };
    world.note(|| format!("the wall clock jumps {} by {by} ms", if back { "back" } else { "ahead" }));
}
