//! Operators' requests: define, show, purge, browse, delete.

mod browse;
mod excerpt;
mod joins;
mod objects;
mod scheduled;
mod stores;
mod views;

use crate::admin::{Request, Response, StatusView};
use crate::engine::Engine;
use crate::store::Store;
use postroad_model::refusal::Refusal;
use postroad_record::MadeBy;

impl Engine {
    /// Carries out one request; `None` if it is answered later.
    pub(crate) fn administer(&mut self, reply: u64, request: Request) -> Option<Result<Response, Refusal>> {
        self.carry_out(reply, request).transpose()
    }

    fn carry_out(&mut self, reply: u64, request: Request) -> Result<Option<Response>, Refusal> {
        let response = match request {
            Request::PutChannel { name, settings, configured } => {
                self.put_channel(&name, settings, configured)?
            }
            Request::PutQueue { name, settings, configured } => {
                self.put_queue(&name, settings, configured)?
            }
            Request::ShowStore { kind, name } => self.show_store(kind, &name)?,
            Request::ListStores { kind, after, limit } => self.list_stores(kind, after.as_deref(), limit),
            Request::DeleteStore { kind, name, cascade, force } => {
                self.delete_store(kind, &name, cascade, force)?
            }
            Request::PurgeStore { kind, name, selection } => {
                return self.purge_store(reply, kind, &name, selection);
            }
            Request::BrowseStore { kind, name, selection, page } => {
                self.browse_store(kind, &name, &selection, &page)?
            }
            Request::ListScheduled { kind, name, page } => self.list_scheduled(kind, &name, &page)?,
            Request::CancelScheduled { kind, name, number } => self.cancel_scheduled(kind, &name, number)?,
            Request::CreateObject { channel, name, settings, configured } => {
                return self.create_native(reply, &channel, &name, settings, configured);
            }
            Request::ShowObject { channel, owner, name } => {
                return self.show_object(reply, &channel, owner, &name);
            }
            Request::ListObjects { channel } => return self.list_objects(reply, channel.as_deref()),
            Request::DeleteObject { channel, owner, name, force } => {
                self.delete_object(&channel, owner, &name, force)?
            }
            Request::PurgeObject { channel, owner, name, selection } => {
                return self.purge_object(reply, &channel, owner, &name, selection);
            }
            Request::BrowseObject { channel, owner, name, selection, page } => {
                self.browse_object(&channel, owner, &name, &selection, &page)?
            }
            Request::CreateJoin { name, settings, configured } => {
                self.create_join(name, settings, configured)?
            }
            Request::DefineJoin { name, settings, enabled } => self.define_join(&name, settings, enabled)?,
            Request::AlterJoin { name, settings } => self.alter_join(&name, settings)?,
            Request::ShowJoin { name } => self.show_join(&name)?,
            Request::ListJoins { store } => self.list_joins(store.as_deref())?,
            Request::DeleteJoin { name, drain } => return self.delete_join(reply, &name, drain),
            Request::EnableJoin { name, enabled } => self.enable_join(&name, enabled)?,
            Request::Status => Response::Status(Box::new(self.status())),
        };
        Ok(Some(response))
    }

    fn status(&self) -> StatusView {
        StatusView {
            name: self.settings.name.clone(),
            broker_id: uuid::Uuid::from_bytes(self.broker_id).to_string(),
            connections: self.conns.len(),
            channels: self.channels.len(),
            queues: self.queues.len(),
            joins: self.joins.len(),
            named_objects: self.objects.len(),
            events: self.all_stores().filter(|store| !store.deleted).map(|store| store.log.len()).sum(),
            messages: self.bodies.len(),
            message_bytes: self.bodies.bytes(),
            jobs: self.job_views(|_| true),
        }
    }

    /// Whether a store is temporary, and so no business of operators' lists.
    fn is_temporary(store: &Store) -> bool {
        store.owner.is_some()
    }
}

/// Who makes a definition.
const fn maker(configured: bool) -> MadeBy {
    if configured { MadeBy::Configuration } else { MadeBy::Operator }
}
