//! Joins for operators (JOIN-2 to JOIN-9, FIL-4, DEL-1, DEL-2).

use super::maker;
use crate::admin::{JoinCounters, JoinView, Response};
use crate::consumer::parse_selector;
use crate::engine::Engine;
use crate::join::Join;
use crate::log::Entry;
use crate::object::made_by_text;
use crate::reader::Position;
use crate::store::Store;
use postroad_model::address::Address;
use postroad_model::id::{JoinKey, StoreKey};
use postroad_model::name::{check_object_name, normalise_channel_name, shorten};
use postroad_model::refusal::{Code, Refusal};
use postroad_model::settings::{JoinRole, JoinSettings, Start};
use postroad_record::Record;

impl Engine {
    pub(super) fn create_join(
        &mut self,
        name: Option<String>,
        mut settings: JoinSettings,
        configured: bool,
    ) -> Result<Response, Refusal> {
        let written = self.normalise_ends(&mut settings);
        let source = self.join_source(&settings)?;
        self.check_destination(&settings, &written, source)?;
        let filter = parse_selector(settings.filter.as_deref())?;
        settings.filter = filter.map(|filter| filter.source().to_owned());
        if let Some(key) = self.same_join(&settings, name.as_deref()) {
            return self.join_again(key, name.as_deref(), &settings);
        }
        let name = name.unwrap_or_else(|| self.free_join_name(&settings));
        check_object_name(&name)?;
        self.check_role(&name, source, &settings)?;
        self.check_disk(&name)?;
        if self.join_names.contains_key(&name) {
            let text = format!("join '{name}' exists with another source or destination");
            return Err(Refusal::new(Code::JoinExists, name, text));
        }
        let cursor = self.start_cursor(source, &settings);
        let join = JoinKey(self.next_join);
        let made_by = maker(configured);
        self.record(Record::JoinCreated { join, name, source, settings, cursor, made_by }, true);
        self.join_response(join, true)
    }

    /// A join of the configuration file. What the file says of `enabled` is asked for by itself: it is none of the
    /// attributes that tell joins apart, and where nothing is said, the default is not what was meant.
    pub(super) fn define_join(
        &mut self,
        name: &str,
        settings: JoinSettings,
        enabled: Option<bool>,
    ) -> Result<Response, Refusal> {
        let made = match self.create_join(Some(name.to_owned()), settings.clone(), true) {
            Err(refusal) if refusal.code == Code::JoinExists => {
                let held = self.join_names.get(name).and_then(|key| self.joins.get(key));
                let enabled = held.map_or(settings.enabled, |join| join.settings.enabled);
                self.alter_join(name, JoinSettings { enabled, ..settings })?
            }
            made => made?,
        };
        match (&made, enabled) {
            (Response::Join(view), Some(enabled)) if view.settings.enabled != enabled => {
                self.enable_join(name, enabled)
            }
            _ => Ok(made),
        }
    }

    /// Brings source and destination into the one form in which they are held and compared, so that what made a join
    /// is also found to be the same join. The destination as it was written, for refusals.
    fn normalise_ends(&self, settings: &mut JoinSettings) -> String {
        settings.source = normalise_channel_name(&settings.source);
        let written = settings.destination.clone();
        let address = Address::parse(&written, None).ok();
        let own =
            |address: &Address| address.broker.as_ref().is_some_and(|broker| *broker == self.settings.name);
        if let Some(Address { name, .. }) = address.filter(own) {
            // The own broker's name says nothing: the destination is kept without it.
            settings.destination = Address { name, ..Address::default() }.to_string();
        }
        written
    }

    /// A standby names its primary, which may be made later; one that is there reads the same channel (ORD-3).
    fn check_role(&self, name: &str, source: StoreKey, settings: &JoinSettings) -> Result<(), Refusal> {
        if settings.role != JoinRole::Standby {
            return Ok(());
        }
        let another = |primary: &&String| !settings.archive && primary.as_str() != name;
        let Some(primary) = settings.standby_for.as_ref().filter(another) else {
            let text = format!(
                "join '{name}' can't be a standby: it must name another join in standby_for, and no archive"
            );
            return Err(Refusal::new(Code::BadValue, name, text));
        };
        let primary = self.join_names.get(primary).and_then(|key| self.joins.get(key));
        let Some(primary) = primary.filter(|primary| primary.source != source) else { return Ok(()) };
        let text = format!(
            "join '{name}' can't be a standby for '{}', which reads '{}': name a join that reads '{}' too",
            primary.name, primary.settings.source, settings.source
        );
        Err(Refusal::new(Code::BadValue, name, text))
    }

    fn join_source(&self, settings: &JoinSettings) -> Result<StoreKey, Refusal> {
        let name = settings.source.as_str();
        if let Some(&key) = self.channels.get(name) {
            return Ok(key);
        }
        if self.queues.contains_key(name) {
            let text = format!("'{name}' is a queue: only a channel can be the source of a join");
            return Err(Refusal::new(Code::JoinSourceIsQueue, name, text));
        }
        let text = format!("there is no channel '{name}' on broker {}: create it first", self.settings.name);
        Err(Refusal::new(Code::JoinSourceNotFound, name, text))
    }

    fn check_destination(
        &self,
        settings: &JoinSettings,
        written: &str,
        source: StoreKey,
    ) -> Result<(), Refusal> {
        if written.is_empty() {
            let text = "a join needs a destination: the name of a channel or queue";
            return Err(Refusal::new(Code::JoinNoDestination, "destination", text));
        }
        if let Some(broker) =
            Address::parse(written, None)?.broker.filter(|broker| *broker != self.settings.name)
        {
            let text = format!("no link leads to '{}'", shorten(&broker));
            return Err(Refusal::new(Code::LinkMissing, written, text));
        }
        match self.find_destination(settings) {
            Some(target) if target == source => {
                let text = format!("'{written}' can't be joined to itself");
                Err(Refusal::new(Code::JoinSelf, written, text))
            }
            Some(target) if settings.archive && !self.store(target).is_some_and(Store::is_queue) => {
                let text = format!("an archive join needs a queue as destination, '{written}' is a channel");
                Err(Refusal::new(Code::ArchiveNeedsQueue, written, text))
            }
            None if !settings.allow_missing => {
                let text = format!(
                    "there is no queue or channel '{written}' on broker {}: create it first, or allow_missing",
                    self.settings.name
                );
                Err(Refusal::new(Code::JoinDestNotFound, written, text))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// A join is known by source, destination, link and archive flag, and by its name (JOIN-7).
    fn same_join(&self, settings: &JoinSettings, name: Option<&str>) -> Option<JoinKey> {
        let same = |join: &&Join| {
            let held = &join.settings;
            held.source == settings.source
                && held.destination == settings.destination
                && held.via == settings.via
                && held.archive == settings.archive
                && name.is_none_or(|name| name == join.name)
        };
        self.joins.values().find(same).map(|join| join.key)
    }

    fn join_again(
        &self,
        key: JoinKey,
        name: Option<&str>,
        settings: &JoinSettings,
    ) -> Result<Response, Refusal> {
        let Some(join) = self.joins.get(&key) else { return self.join_response(key, false) };
        // Where it began, and whether it is paused now, are no attributes that tell joins apart.
        let (start, enabled) = (join.settings.start, join.settings.enabled);
        let wanted = JoinSettings { start, enabled, ..settings.clone() };
        if join.settings == wanted && name.is_none_or(|name| name == join.name) {
            return self.join_response(key, false);
        }
        let text = format!(
            "join '{}' from {} to {} exists with other attributes: alter or delete it",
            join.name, join.settings.source, join.settings.destination
        );
        Err(Refusal::new(Code::JoinExists, join.name.clone(), text))
    }

    fn free_join_name(&self, settings: &JoinSettings) -> String {
        let plain = format!("{}->{}", settings.source, settings.destination);
        let archive = if settings.archive { " archive" } else { "" };
        let base: String = format!("{plain}{archive}").chars().take(200).collect();
        if !self.join_names.contains_key(&base) {
            return base;
        }
        let numbered = (2u32..).map(|n| format!("{base} {n}"));
        numbered.into_iter().find(|name| !self.join_names.contains_key(name)).unwrap_or(base)
    }

    /// JOIN-9: the cursor from which a new join begins.
    fn start_cursor(&self, source: StoreKey, settings: &JoinSettings) -> u64 {
        let Some(store) = self.store(source) else { return 0 };
        if settings.archive {
            // An archive records arrivals; those before it are not kept.
            return store.last_arrival();
        }
        let start = match settings.start {
            Start::New => store.last_id(),
            Start::Oldest => 0,
            Start::At(id) => id.saturating_sub(1),
        };
        // A standby begins where its primary is, wherever that is (ORD-3).
        let primary =
            settings.standby_for.as_ref().and_then(|name| self.joins.get(self.join_names.get(name)?));
        let primary = primary.filter(|primary| primary.source == source);
        primary.map_or(start, |primary| primary.cursor)
    }

    pub(super) fn join_key(&self, name: &str) -> Result<JoinKey, Refusal> {
        self.join_names.get(name).copied().ok_or_else(|| {
            let text = format!("there is no join '{}' on broker {}", shorten(name), self.settings.name);
            Refusal::new(Code::JoinNotFound, shorten(name), text)
        })
    }

    pub(super) fn alter_join(&mut self, name: &str, mut settings: JoinSettings) -> Result<Response, Refusal> {
        let key = self.join_key(name)?;
        let Some(join) = self.joins.get(&key) else { return self.join_response(key, false) };
        let held = &join.settings;
        self.normalise_ends(&mut settings);
        let moved = held.source != settings.source
            || held.destination != settings.destination
            || held.archive != settings.archive
            || held.via != settings.via;
        if moved {
            let text =
                format!("source, destination, via and archive of join '{name}' can't change: make another");
            return Err(Refusal::new(Code::JoinExists, name, text));
        }
        settings.start = held.start;
        self.check_role(name, join.source, &settings)?;
        let filter = parse_selector(settings.filter.as_deref())?;
        settings.filter = filter.map(|filter| filter.source().to_owned());
        self.record_altered(key, settings);
        self.join_response(key, false)
    }

    /// Records new settings of a join, and before a new filter how far the old one was used (FIL-4).
    fn record_altered(&mut self, join: JoinKey, settings: JoinSettings) {
        let Some(state) = self.joins.get(&join) else { return };
        let Some(source) = self.store(state.source) else { return };
        let (settled, filter_from) = if settings.archive {
            (state.passed, source.last_arrival())
        } else {
            (self.join_position(join).saturating_sub(1), source.last_id())
        };
        if state.settings.filter != settings.filter && settled > state.cursor {
            self.record(Record::JoinMoved { join, cursor: settled }, true);
        }
        self.record(Record::JoinAltered { join, settings, filter_from }, true);
    }

    pub(super) fn enable_join(&mut self, name: &str, enabled: bool) -> Result<Response, Refusal> {
        let key = self.join_key(name)?;
        let Some(join) = self.joins.get_mut(&key) else { return self.join_response(key, false) };
        if join.settings.enabled != enabled {
            let settings = JoinSettings { enabled, ..join.settings.clone() };
            if enabled {
                // It runs from now on, though its first turn is still to come.
                join.stop = None;
            }
            self.record_altered(key, settings);
            if !enabled {
                self.run_join(key);
            }
        }
        self.join_response(key, false)
    }

    pub(super) fn show_join(&self, name: &str) -> Result<Response, Refusal> {
        self.join_response(self.join_key(name)?, false)
    }

    pub(super) fn list_joins(&self, store: Option<&str>) -> Result<Response, Refusal> {
        let at = |join: &JoinView| {
            store.is_none_or(|name| join.settings.source == name || join.settings.destination == name)
        };
        let keys = self.join_names.values();
        Ok(Response::Joins { items: keys.filter_map(|&key| self.join_view(key, false)).filter(at).collect() })
    }

    /// Deletes a join at once, or (`None`) once it has forwarded what waits.
    pub(super) fn delete_join(
        &mut self,
        reply: u64,
        name: &str,
        drain: bool,
    ) -> Result<Option<Response>, Refusal> {
        let key = self.join_key(name)?;
        if drain && !self.stands_by(key) {
            self.drain_join(key, reply)?;
            return Ok(None);
        }
        let not_forwarded = self.delete_join_now(key);
        Ok(Some(Response::JoinDeleted { name: name.to_owned(), not_forwarded }))
    }

    /// Whether a join leaves everything to its primary now (ORD-3).
    fn stands_by(&self, key: JoinKey) -> bool {
        self.joins.get(&key).is_some_and(|join| join.stop == Some(crate::join::Stop::Standby))
    }

    /// Source events, or arrivals, that the join has not forwarded and would.
    pub(crate) fn join_backlog(&self, key: JoinKey) -> u64 {
        let Some(join) = self.joins.get(&key).filter(|_| !self.stands_by(key)) else { return 0 };
        let Some(store) = self.store(join.source) else { return 0 };
        if join.settings.archive {
            let ahead = store.arrivals.iter().filter(|arrival| arrival.number > join.passed);
            let passing = ahead.filter(|arrival| self.passes_filter(key, arrival.number, &arrival.event));
            return passing.count() as u64;
        }
        let at = self.join_position(key);
        let passes = |entry: &Entry| self.passes_filter(key, entry.event.id, &entry.event);
        let spooled = store.spool.range(at..).filter(|(_, entry)| passes(entry)).count() as u64;
        let filter = self.readers.get(join.reader).and_then(|reader| reader.filter.as_ref());
        if filter.is_none() && join.old_filters.is_empty() {
            return spooled + store.log.len_from(at);
        }
        spooled + store.log.count_from(at, passes)
    }

    fn join_response(&self, key: JoinKey, created: bool) -> Result<Response, Refusal> {
        let view = self.join_view(key, created);
        view.map(|view| Response::Join(Box::new(view)))
            .ok_or_else(|| Refusal::new(Code::IllegalState, "join", "the join is gone"))
    }

    fn join_view(&self, key: JoinKey, created: bool) -> Option<JoinView> {
        let join = self.joins.get(&key)?;
        let store = self.store(join.source)?;
        // Past what it was offered and did not want, a join stands at the tail, whatever its durable cursor says.
        let offered = store.channel()?.offered;
        let cursor = match self.readers.get(join.reader)?.position {
            _ if join.settings.archive => join.passed,
            Position::Tail => offered.max(join.cursor),
            Position::Behind(at) => at.saturating_sub(1).max(join.cursor),
        };
        // Arrivals that were only in memory are gone after a restart, and their numbers with them.
        let to_record = store.arrivals.iter().rev().take_while(|arrival| arrival.number > join.passed);
        let lag_events = match join.settings.archive {
            true => to_record.count() as u64,
            false => store.last_id().saturating_sub(cursor),
        };
        let (state, reason) = join.stop.map_or(("running", ""), crate::join::Stop::texts);
        Some(JoinView {
            name: join.name.clone(),
            created,
            made_by: made_by_text(join.made_by),
            settings: join.settings.clone(),
            state,
            reason: reason.to_owned(),
            cursor,
            lag_events,
            counters: self.join_counters(join),
        })
    }

    /// The counters of a join, with what its filter kept back at the tail since it stood there.
    fn join_counters(&self, join: &Join) -> JoinCounters {
        let mut counters = join.counters.clone();
        let at_tail = self.readers.get(join.reader).is_some_and(|reader| reader.position == Position::Tail);
        if let Some(channel) = self.store(join.source).and_then(Store::channel).filter(|_| at_tail) {
            counters.filtered_total += channel.offers.saturating_sub(join.offers_seen);
        }
        counters
    }
}
