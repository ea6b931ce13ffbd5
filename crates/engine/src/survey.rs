//! Surveys: views of named objects. How many events an object owes has to be counted, and they may be millions: that
//! goes in pieces, so that a look at the broker holds nobody up (DESIGN 7.7, SH-10).

use crate::admin::{ObjectView, Response};
use crate::engine::{Engine, Task};
use postroad_model::id::{EventId, ObjectKey};
use postroad_model::refusal::{Code, Refusal};
use std::collections::VecDeque;

/// Events that one piece looks at at most.
const LOOKS_PER_TASK: usize = 4_096;
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
        if self.count_on(&mut survey) {
            return survey.answer().map(Some);
        }
        if self.surveys.len() >= MAX_SURVEYS {
            let text = format!("{MAX_SURVEYS} requests count events already: try again later");
            return Err(Refusal::new(Code::LimitReached, "named objects", text));
        }
        let number = self.next_survey;
        self.next_survey += 1;
        self.surveys.insert(number, survey);
        self.schedule(Task::Survey(number));
        Ok(None)
    }

    /// Does a piece of a survey; whether there is more to do.
    pub(crate) fn go_on_with_survey(&mut self, number: u64) -> bool {
        let Some(mut survey) = self.surveys.remove(&number) else { return false };
        if !self.count_on(&mut survey) {
            self.surveys.insert(number, survey);
            return true;
        }
        self.answer_operator(survey.reply, survey.answer());
        false
    }

    /// Counts a piece further; whether that was all.
    fn count_on(&self, survey: &mut Survey) -> bool {
        let mut looks = LOOKS_PER_TASK;
        while let Some(&key) = survey.left.front() {
            let Some(count) = survey.count.or_else(|| self.begin_count(key)) else {
                // It was deleted meanwhile.
                survey.left.pop_front();
                continue;
            };
            let count = self.count_owed(key, count, &mut looks);
            if looks == 0 {
                survey.count = Some(count);
                return false;
            }
            // An object costs a look of its own, or a list of many idle ones would have no end.
            looks -= 1;
            survey.count = None;
            survey.left.pop_front();
            let created = survey.asked == Asked::One { created: true };
            survey.views.extend(self.object_view(key, created, count.owed));
        }
        true
    }

    fn begin_count(&self, key: ObjectKey) -> Option<Count> {
        let object = self.objects.get(&key)?;
        let reader = self.readers.get(object.reader)?;
        let last = self.store(object.store)?.last_id();
        Some(Count { at: reader.lowest_need().unwrap_or(EventId::MAX), last, owed: 0 })
    }

    fn count_owed(&self, key: ObjectKey, mut count: Count, looks: &mut usize) -> Count {
        let Some(object) = self.objects.get(&key) else { return count };
        let Some(store) = self.store(object.store) else { return count };
        while *looks > 0 {
            let Some(entry) = store.log.first_from(count.at).filter(|entry| entry.event.id <= count.last)
            else {
                return count;
            };
            *looks -= 1;
            count.owed += u64::from(self.reader_owes(object.reader, entry.event.id));
            count.at = entry.event.id + 1;
        }
        count
    }
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
