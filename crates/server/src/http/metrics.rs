//! `/metrics`: OpenMetrics text, one table per noun.

use super::App;
use super::errors::{ApiError, ApiResult};
use axum::extract::State;
use axum::http::{HeaderName, header};
use postroad_engine::admin::{JoinView, ObjectView, Request, Response, StatusView, StoreKind, StoreView};
use std::fmt::Write;

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Stores asked for at a time, so that no scrape holds up the engine.
const STORES_PER_LOOK: usize = 200;

/// A family: its name without prefix and `_total`, whether it counts, what it means, and its value.
type Family<V> = (&'static str, bool, &'static str, fn(&V) -> i128);

const STORES: &[Family<StoreView>] = &[
    ("store_depth", false, "Events stored", |s| s.depth.into()),
    ("store_bytes", false, "Bytes of the messages stored", |s| s.bytes.into()),
    ("store_consumers", false, "Consumers attached", |s| s.consumers as i128),
    ("store_in_delivery", false, "Deliveries without outcome", |s| s.in_delivery.into()),
    ("store_stranded", false, "Messages that match no attached consumer", |s| s.stranded.into()),
    ("store_scheduled", false, "Messages that wait for their delivery time", |s| s.scheduled.into()),
    ("store_last_event_id", false, "Newest event id given", |s| s.last_event_id.into()),
    ("store_stored", true, "Events stored", |s| s.counters.stored_total.into()),
    ("store_delivered", true, "Deliveries sent", |s| s.counters.delivered_total.into()),
    ("store_acked", true, "Events finished by consumers", |s| s.counters.acked_total.into()),
    ("store_redelivered", true, "Deliveries sent again", |s| s.counters.redelivered_total.into()),
    ("store_expired", true, "Events expired", |s| s.counters.expired_total.into()),
    ("store_evicted", true, "Events evicted by capacity", |s| s.counters.evicted_total.into()),
    ("store_refused", true, "Publishes refused", |s| s.counters.refused_total.into()),
    ("store_deduplicated", true, "Repeated message-ids not stored", |s| s.counters.deduplicated_total.into()),
    ("store_dead_lettered", true, "Events dead-lettered", |s| s.counters.dead_lettered_total.into()),
    ("store_undecidable", true, "Copies too old to be judged", |s| s.counters.undecidable_total.into()),
];

const JOINS: &[Family<JoinView>] = &[
    ("join_lag_events", false, "Source events behind the newest", |j| j.lag_events.into()),
    ("join_forwarded", true, "Events stored at the destination", |j| j.counters.forwarded_total.into()),
    ("join_filtered", true, "Events that the filter kept back", |j| j.counters.filtered_total.into()),
    ("join_duplicate", true, "Events that the destination had", |j| j.counters.duplicate_total.into()),
    ("join_hop_stopped", true, "Events stopped by the hop limit", |j| j.counters.hop_stopped_total.into()),
    ("join_split_horizon", true, "Events not sent back", |j| j.counters.split_horizon_total.into()),
    ("join_expired", true, "Events whose time was over", |j| j.counters.expired_total.into()),
    ("join_dead_lettered", true, "Events refused for good", |j| j.counters.dead_lettered_total.into()),
    ("join_retried", true, "Tries of a blocked destination", |j| j.counters.retried_total.into()),
    ("join_hop_refresh_missed", true, "Hop limits raised too late", |j| {
        j.counters.hop_refresh_missed_total.into()
    }),
];

const OBJECTS: &[Family<ObjectView>] = &[
    ("object_backlog", false, "Events owed", |o| o.backlog.into()),
    ("object_outstanding_events", false, "Events not acknowledged, -1 if not shared", |o| {
        o.outstanding_events.into()
    }),
    ("object_in_delivery", false, "Deliveries without outcome", |o| o.in_delivery.into()),
    ("object_last_event_id", false, "Highest event with nothing owed below", |o| o.last_event_id.into()),
    ("object_consumers", false, "Consumers attached", |o| o.consumers.len() as i128),
    ("object_redelivered", true, "Deliveries sent again", |o| o.redelivered.into()),
    ("object_dead_lettered", true, "Events dead-lettered", |o| o.dead_lettered.into()),
    ("object_skipped", true, "Owed events removed undelivered", |o| o.skipped_events.into()),
];

const BROKER: &[Family<StatusView>] = &[
    ("connections", false, "Connections", |b| b.connections as i128),
    ("channels", false, "Channels defined", |b| b.channels as i128),
    ("queues", false, "Queues defined", |b| b.queues as i128),
    ("joins", false, "Joins defined", |b| b.joins as i128),
    ("named_objects", false, "Named objects", |b| b.named_objects as i128),
    ("events", false, "Events in all stores", |b| b.events.into()),
    ("messages", false, "Messages held, each counted once", |b| b.messages as i128),
    ("message_bytes", false, "Bytes of the messages held", |b| b.message_bytes.into()),
];

/// The states that a join can be in.
const JOIN_STATES: [&str; 4] = ["running", "paused", "waiting", "blocked"];

/// Everything that is counted, for a scraper.
pub(super) async fn metrics(State(app): State<App>) -> ApiResult<([(HeaderName, &'static str); 1], String)> {
    let Response::Status(broker) = app.admin.request(Request::Status).await? else {
        return Err(ApiError::odd_answer());
    };
    let mut stores = all_stores(&app, StoreKind::Channel).await?;
    stores.extend(all_stores(&app, StoreKind::Queue).await?);
    let Response::Joins { items: joins } = app.admin.request(Request::ListJoins { store: None }).await?
    else {
        return Err(ApiError::odd_answer());
    };
    let Response::Objects { items: objects } =
        app.admin.request(Request::ListObjects { channel: None }).await?
    else {
        return Err(ApiError::odd_answer());
    };
    let mut page = Page::default();
    page.family("build", "info", "The program");
    page.sample("build_info", &[("version", &app.info.version), ("broker", &app.info.name)], 1);
    page.family("uptime_seconds", "gauge", "Seconds since the start");
    page.sample("uptime_seconds", &[], app.info.started.elapsed().as_secs().into());
    page.table(BROKER, &[*broker], |_| Vec::new());
    page.table(STORES, &stores, |s| vec![("kind", kind_word(s.kind)), ("name", &s.name)]);
    page.table(OBJECTS, &objects, |o| vec![("channel", &o.channel), ("owner", &o.owner), ("name", &o.name)]);
    page.table(JOINS, &joins, |j| vec![("join", &j.name)]);
    page.join_states(&joins);
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], page.end()))
}

async fn all_stores(app: &App, kind: StoreKind) -> ApiResult<Vec<StoreView>> {
    let mut stores: Vec<StoreView> = Vec::new();
    loop {
        let after = stores.last().map(|store| store.name.clone());
        let request = Request::ListStores { kind, after, limit: STORES_PER_LOOK };
        let Response::Stores { items } = app.admin.request(request).await? else {
            return Err(ApiError::odd_answer());
        };
        let is_last = items.len() < STORES_PER_LOOK;
        stores.extend(items);
        if is_last {
            return Ok(stores);
        }
    }
}

const fn kind_word(kind: StoreKind) -> &'static str {
    match kind {
        StoreKind::Channel => "channel",
        StoreKind::Queue => "queue",
    }
}

/// The text as it grows. Writing to a string can't fail, so the results of `write!` say nothing.
#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn table<V>(&mut self, families: &[Family<V>], items: &[V], labels: fn(&V) -> Vec<(&'static str, &str)>) {
        for (name, counts, help, value) in families {
            self.family(name, if *counts { "counter" } else { "gauge" }, help);
            let sample = if *counts { format!("{name}_total") } else { (*name).to_owned() };
            for item in items {
                self.sample(&sample, &labels(item), value(item));
            }
        }
    }

    fn join_states(&mut self, joins: &[JoinView]) {
        self.family("join_state", "stateset", "What a join does now");
        for join in joins {
            for state in JOIN_STATES {
                let labels = [("join", join.name.as_str()), ("postroad_join_state", state)];
                self.sample("join_state", &labels, i128::from(join.state == state));
            }
        }
    }

    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.text, "# TYPE postroad_{name} {kind}\n# HELP postroad_{name} {help}.");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: i128) {
        let _ = write!(self.text, "postroad_{name}");
        for (at, (label, text)) in labels.iter().enumerate() {
            let open = if at == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{open}{label}=\"{}\"", escape(text));
        }
        let close = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{close} {value}");
    }

    fn end(mut self) -> String {
        self.text.push_str("# EOF\n");
        self.text
    }
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
