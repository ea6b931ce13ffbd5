//! The engine as the shell drives it, and for a simulator a twin beside it: a second engine that is told the same, whose
//! hash tables get other seeds again and again, and whose output is taken in other pieces. Both must give the same, byte for byte (DESIGN 2). Without a twin this is
//! the engine and nothing else.

use postroad_engine::{Command, Engine, Now, Output, Step};
use postroad_model::settings::BrokerSettings;
use postroad_record::{DecodeError, FramePlace};
use std::collections::BTreeSet;

/// The engine, with a twin if one is wanted.
#[derive(Debug)]
pub(crate) struct Driven {
    engine: Engine,
    twin: Option<Box<Twin>>,
}

/// A second engine that is told the same.
#[derive(Debug)]
struct Twin {
    engine: Engine,
    /// Where its seeds and the moments at which it gets them come from.
    chance: u64,
    output: Output,
    difference: Option<String>,
}

impl Driven {
    /// An empty engine, and an empty twin if there is a seed for one.
    pub(crate) fn new(settings: &BrokerSettings, seed: [u8; 16], twin: Option<u64>) -> Self {
        let engine = || Engine::new(settings.clone(), seed);
        let twin = twin.map(|chance| {
            Box::new(Twin { engine: engine(), chance, output: Output::default(), difference: None })
        });
        Self { engine: engine(), twin }
    }

    /// As [`Engine::replay`].
    pub(crate) fn replay(&mut self, payload: &[u8], place: FramePlace) -> Result<(), DecodeError> {
        if let Some(twin) = &mut self.twin {
            twin.engine.replay(payload, place)?;
        }
        self.engine.replay(payload, place)
    }

    /// The end of the replay: as [`Engine::recovered`], [`Engine::configure`] and [`Engine::found`].
    pub(crate) fn found(&mut self, continues: bool, settings: &BrokerSettings) {
        self.each(|engine| {
            engine.recovered(continues);
            engine.configure(settings.clone());
            engine.found();
        });
    }

    /// Does the same with both.
    pub(crate) fn each(&mut self, mut tell: impl FnMut(&mut Engine)) {
        tell(&mut self.engine);
        if let Some(twin) = &mut self.twin {
            tell(&mut twin.engine);
            twin.shuffle();
        }
    }

    /// As [`Engine::handle`].
    pub(crate) fn handle(&mut self, now: Now, command: Command) {
        if let Some(twin) = &mut self.twin {
            twin.engine.handle(now, command.clone());
            twin.shuffle();
        }
        self.engine.handle(now, command);
    }

    /// As [`Engine::run`].
    pub(crate) fn run(&mut self, now: Now, budget: usize) -> bool {
        if let Some(twin) = &mut self.twin {
            twin.engine.run(now, budget);
            twin.shuffle();
        }
        self.engine.run(now, budget)
    }

    /// As [`Engine::placed`].
    pub(crate) fn placed(&mut self, step: Step, place: FramePlace) {
        self.each(|engine| engine.placed(step, place));
    }

    /// As [`Engine::became_durable`].
    pub(crate) fn became_durable(&mut self, step: Step) {
        self.each(|engine| engine.became_durable(step));
    }

    /// As [`Engine::set_disk_full`].
    pub(crate) fn set_disk_full(&mut self, full: bool) {
        self.each(|engine| engine.set_disk_full(full));
    }

    /// As [`Engine::clear_segments`].
    pub(crate) fn clear_segments(&mut self, segments: &BTreeSet<u64>) {
        self.each(|engine| engine.clear_segments(segments.clone()));
    }

    /// As [`Engine::take_output`].
    pub(crate) fn take_output(&mut self, out: &mut Output) {
        self.engine.take_output(out);
        if let Some(twin) = &mut self.twin {
            twin.compare(out);
        }
    }

    /// The engine itself.
    pub(crate) const fn engine(&self) -> &Engine {
        &self.engine
    }

    /// What the twin did otherwise, if it did.
    pub(crate) fn difference(&self) -> Option<&str> {
        self.twin.as_ref()?.difference.as_deref()
    }
}

impl Twin {
    fn below(&mut self, limit: u64) -> u64 {
        self.chance = self.chance.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.chance >> 33).checked_rem(limit).unwrap_or(0)
    }

    /// Gives the hash tables another seed, now and then, and takes what there is so far.
    fn shuffle(&mut self) {
        if self.below(8) == 0 {
            self.engine.rehash(self.chance);
        }
        if self.below(2) == 0 {
            self.engine.take_so_far(&mut self.output);
        }
    }

    fn compare(&mut self, out: &Output) {
        let mut rest = Output::default();
        self.engine.take_output(&mut rest);
        self.output.append(&mut rest);
        let Output { steps, effects, .. } = std::mem::take(&mut self.output);
        if self.difference.is_some() {
            return;
        }
        let same = |at: usize| {
            let (own, other) = (steps.get(at), out.steps.get(at));
            own.map(|s| (s.step, &s.payload)) == other.map(|s| (s.step, &s.payload))
        };
        let count = steps.len().max(out.steps.len());
        if let Some(at) = (0..count).find(|&at| !same(at)) {
            self.difference = Some(format!("the step at {at} of {count} of a turn"));
            return;
        }
        let count = effects.len().max(out.effects.len());
        let text = |effects: &[(Step, _)], at: usize| effects.get(at).map(|effect| format!("{effect:?}"));
        self.difference = (0..count).find_map(|at| {
            let (own, other) = (text(&effects, at), text(&out.effects, at));
            (own != other).then(|| format!("{own:?} instead of {other:?}"))
        });
    }
}
