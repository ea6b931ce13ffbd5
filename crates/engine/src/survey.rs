//! Surveys: views of named objects. How many events an object owes has to be counted, and they may be millions: that
//! goes in pieces, so that a look at the broker holds nobody up (DESIGN 7.7, SH-10). What a selector lets pass can't be
//! told without the message: a survey waits for those that are on disk, and what came of whole pages is kept ([`crate::tally`]),
//! so that they are read once.

use crate::admin::{ObjectView, Response};
use crate::engine::{Engine, Task};
use crate::reader::{Position, Reader};
use postroad_model::id::{EventId, ObjectKey};
use postroad_model::refusal::{Code, Refusal};
use postroad_record::PAGE as SLOTS;
use std::collections::VecDeque;

/// Events of one page.
const PAGE: u64 = SLOTS as u64;
/// Events that one piece looks at at most.
const LOOKS_PER_TASK: usize = 4_096;
/// What a page that was counted before costs of them.
const LOOKS_PER_KNOWN_PAGE: usize = 64;
/// Surveys that may go on at once.
const MAX_SURVEYS: usize = 1_000;

/// Named objects that are looked at one after the other.
#[derive(Debug)]
pub(crate) struct Survey {
    /// Where the answer goes.
    reply: u64,
    /// What is asked for.
    asked: Asked,
    /// Those that are not counted yet.
    left: VecDeque<ObjectKey>,
    /// How far the first of them is counted.
    count: Option<Count>,
    views: Vec<ObjectView>,
}

/// What a survey answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// One object; whether the request made it.
    One { created: bool },
    /// A list.
    List,
}

/// Events of one object that have been counted.
#[derive(Clone, Copy, Debug)]
struct Count {
    /// The next one to look at.
    at: EventId,
    /// The last one.
    last: EventId,
    owed: u64,
    /// The page in which it is.
    page: Option<PageCount>,
}

/// A page of events that is being counted.
#[derive(Clone, Copy, Debug)]
struct PageCount {
    number: u64,
    /// Events that were in it at first, if its count will be one of the whole page.
    live: Option<u32>,
    /// What was owed before it.
    before: u64,
}

/// How far a survey came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// To its end.
    Done,
    /// To the end of its turn.
    Part,
    /// To a message that must be read first: it has its next turn when that is there.
    Reading,
}

impl Engine {
    /// Looks at named objects. If that is little work the answer comes at once, else later.
    pub(crate) fn survey(
        &mut self,
        reply: u64,
        objects: impl IntoIterator<Item = ObjectKey>,
        asked: Asked,
    ) -> Result<Option<Response>, Refusal> {
        let left = objects.into_iter().collect();
        let mut survey = Survey { reply, asked, left, count: None, views: Vec::new() };
        let number = self.next_survey;
        self.next_survey += 1;
        let progress = self.count_on(number, &mut survey);
        if progress == Progress::Done {
            return survey.answer().map(Some);
        }
        if self.surveys.len() >= MAX_SURVEYS {
            let text = format!("{MAX_SURVEYS} requests count events already: try again later");
            return Err(Refusal::new(Code::LimitReached, "named objects", text));
        }
        self.surveys.insert(number, survey);
        if progress == Progress::Part {
            self.schedule(Task::Survey(number));
        }
        Ok(None)
    }

    /// Does a piece of a survey; whether there is more to do now.
    pub(crate) fn go_on_with_survey(&mut self, number: u64) -> bool {
        let Some(mut survey) = self.surveys.remove(&number) else { return false };
        let progress = self.count_on(number, &mut survey);
        if progress == Progress::Done {
            self.answer_operator(survey.reply, survey.answer());
        } else {
            self.surveys.insert(number, survey);
        }
        progress == Progress::Part
    }

    /// Counts a piece further.
    fn count_on(&mut self, number: u64, survey: &mut Survey) -> Progress {
        let mut looks = LOOKS_PER_TASK;
        while let Some(&key) = survey.left.front() {
            let Some(mut count) = survey.count.or_else(|| self.begin_count(key)) else {
                // It was deleted meanwhile.
                survey.left.pop_front();
                continue;
            };
            let progress = self.count_owed(number, key, &mut count, &mut looks);
            if progress != Progress::Done {
                survey.count = Some(count);
                return progress;
            }
            // An object costs a look of its own, or a list of many idle ones would have no end.
            looks = looks.saturating_sub(1);
            survey.count = None;
            survey.left.pop_front();
            let created = survey.asked == Asked::One { created: true };
            survey.views.extend(self.object_view(key, created, count.owed));
        }
        Progress::Done
    }

    fn begin_count(&mut self, key: ObjectKey) -> Option<Count> {
        let object = self.objects.get(&key)?;
        let reader = self.readers.get(object.reader)?;
        let last = self.store(object.store)?.last_id();
        let at = reader.lowest_need().unwrap_or(EventId::MAX);
        self.objects.get_mut(&key)?.tally.forget_below(at / PAGE);
        Some(Count { at, last, owed: 0, page: None })
    }

    fn count_owed(&mut self, number: u64, key: ObjectKey, count: &mut Count, looks: &mut usize) -> Progress {
        while *looks > 0 {
            let Some(object) = self.objects.get(&key) else { return Progress::Done };
            let (store, reader) = (object.store, object.reader);
            let log = self.store(store).map(|store| &store.log);
            let found = log.and_then(|log| log.first_from(count.at)).map(|entry| entry.event.id);
            let id = found.filter(|&id| id <= count.last);
            let page = id.map(|id| id / PAGE);
            if count.page.is_some_and(|counted| Some(counted.number) != page) {
                self.end_page(key, count);
            }
            let (Some(id), Some(page)) = (id, page) else { return Progress::Done };
            if count.page.is_none() && self.begin_page(key, count, page) {
                *looks = looks.saturating_sub(LOOKS_PER_KNOWN_PAGE);
                continue;
            }
            let selective = self.readers.get(reader).is_some_and(|reader| reader.filter.is_some());
            let page_end = page * PAGE + (PAGE - 1);
            if selective && !self.is_at_hand_up_to(store, id, page_end, Task::Survey(number)) {
                return Progress::Reading;
            }
            *looks -= 1;
            count.owed += u64::from(self.reader_owes(reader, id));
            count.at = id + 1;
        }
        Progress::Part
    }

    /// The count comes to a page; true if it is known already, and done with.
    fn begin_page(&self, key: ObjectKey, count: &mut Count, page: u64) -> bool {
        let live = self.whole_page(key, page);
        let tally = self.objects.get(&key).map(|object| &object.tally);
        let known = live.zip(tally).and_then(|(live, tally)| tally.owed_of(page, live));
        if let Some(owed) = known {
            count.owed += u64::from(owed);
            count.at = (page + 1) * PAGE;
        } else {
            count.page = Some(PageCount { number: page, live, before: count.owed });
        }
        known.is_some()
    }

    /// The count leaves a page: what it came to is kept, if nothing happened to the page meanwhile.
    fn end_page(&mut self, key: ObjectKey, count: &mut Count) {
        let Some(page) = count.page.take() else { return };
        let Some(live) = page.live.filter(|_| self.whole_page(key, page.number) == page.live) else { return };
        let owed = u32::try_from(count.owed - page.before).ok();
        if let (Some(object), Some(owed)) = (self.objects.get_mut(&key), owed) {
            object.tally.note(page.number, live, owed);
        }
    }

    /// The events in a page, if what an object owes of them is told by its selector alone, and none can be added.
    fn whole_page(&self, key: ObjectKey, page: u64) -> Option<u32> {
        let object = self.objects.get(&key)?;
        let reader = self.readers.get(object.reader).filter(|reader| reader.filter.is_some())?;
        let store = self.store(object.store)?;
        let is_full = page < store.last_id() / PAGE;
        (is_full && is_untouched(reader, page)).then(|| store.log.live_in(page))
    }
}

/// Whether a reader has not come to a page, and has nothing of it behind it.
fn is_untouched(reader: &Reader, page: u64) -> bool {
    let first = page * PAGE;
    let ahead = matches!(reader.position, Position::Behind(at) if at <= first);
    ahead && !reader.done.touches(first, first + PAGE - 1)
}

impl Survey {
    fn answer(mut self) -> Result<Response, Refusal> {
        match self.asked {
            Asked::List => {
                self.views.sort_by(|a, b| (&a.channel, &a.id).cmp(&(&b.channel, &b.id)));
                Ok(Response::Objects { items: self.views })
            }
            Asked::One { .. } => {
                let view = self.views.pop().map(|view| Response::Object(Box::new(view)));
                view.ok_or_else(|| Refusal::new(Code::ObjectNotFound, "object", "the named object is gone"))
            }
        }
    }
}
