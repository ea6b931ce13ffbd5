// rhea with promises: just enough that a test reads from top to bottom.

import rhea from 'rhea';

const PATIENCE_MS = 10_000;

/** Opens a connection. Each has a container of its own, so that tests do not hear each other's events. */
export async function connect(port, options = {}) {
  const container = rhea.create_container();
  const connection = container.connect({ host: '127.0.0.1', port, reconnect: false, ...options });
  await happens(connection, 'connection_open', ['connection_error', 'disconnected']);
  connection.on('error', () => {});
  connection.on('disconnected', () => {});
  return connection;
}

/** Waits for an event of an emitter; one of `failures` rejects with what it carries. */
export function happens(emitter, event, failures = []) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => done(() => reject(new Error(`no ${event} within ${PATIENCE_MS} ms`))), PATIENCE_MS);
    const failed = (context) => done(() => reject(errorOf(context)));
    const came = (context) => done(() => resolve(context));
    function done(then) {
      clearTimeout(timer);
      emitter.removeListener(event, came);
      failures.forEach((name) => emitter.removeListener(name, failed));
      then();
    }
    emitter.once(event, came);
    failures.forEach((name) => emitter.once(name, failed));
  });
}

function errorOf(context) {
  const cause = context.receiver?.error ?? context.sender?.error ?? context.connection?.error ?? context.error;
  return Object.assign(new Error(cause?.description ?? 'failed'), { condition: cause?.condition });
}

/** Opens a sender; rejects with the broker's condition if it is refused. */
export async function openSender(connection, target, options = {}) {
  const sender = connection.open_sender({ target, ...options });
  await attached(sender, 'sender');
  await creditOf(sender);
  return sender;
}

/** Opens a receiver without automatic credit or acceptance. */
export async function openReceiver(connection, source, options = {}) {
  const receiver = connection.open_receiver({ source, credit_window: 0, autoaccept: false, ...options });
  receiver.waiting = [];
  receiver.arrived = [];
  receiver.on('message', (context) => {
    const next = receiver.waiting.shift();
    if (next) next(context);
    else receiver.arrived.push(context);
  });
  await attached(receiver, 'receiver');
  return receiver;
}

/** A refusal is an attach with a null terminus, followed by a detach; rhea may report both in one turn. */
async function attached(link, kind) {
  link.on(`${kind}_error`, () => {});
  await happens(link, `${kind}_open`, [`${kind}_error`]);
  const terminus = kind === 'sender' ? link.target : link.source;
  if (link.remote.detach === undefined && terminus?.value != null) return;
  if (link.remote.detach === undefined) await happens(link, `${kind}_close`);
  throw errorOf({ [kind]: link });
}

async function creditOf(sender) {
  if (!sender.sendable()) await happens(sender, 'sendable', ['sender_error', 'sender_close']);
}

/** Sends one message and resolves to its outcome: accepted, released, rejected or modified. */
export async function send(sender, message) {
  await creditOf(sender);
  const delivery = sender.send(message);
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error('no outcome')), PATIENCE_MS);
    const outcomes = ['accepted', 'released', 'rejected', 'modified'];
    const handlers = outcomes.map((name) => {
      const handler = (context) => {
        if (context.delivery !== delivery) return;
        clearTimeout(timer);
        outcomes.forEach((other, place) => sender.removeListener(other, handlers[place]));
        resolve({ outcome: name, error: delivery.remote_state?.error });
      };
      sender.on(name, handler);
      return handler;
    });
  });
}

/** The next message of a receiver, with credit for it if none came yet. */
export async function receive(receiver, credit = 1) {
  if (receiver.arrived.length > 0) return receiver.arrived.shift();
  if (receiver.credit === 0 && credit) receiver.add_credit(credit);
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error('no message')), PATIENCE_MS);
    receiver.waiting.push((context) => {
      clearTimeout(timer);
      resolve(context);
    });
  });
}

/** Everything the broker has now: credit with drain until it is used up, by messages or by the broker's flow. */
export async function drain(receiver, credit = 100) {
  receiver.drain = true;
  receiver.add_credit(credit);
  while (receiver.credit > 0) await happensOneOf(receiver, ['receiver_drained', 'message']);
  receiver.drain = false;
  return receiver.arrived.splice(0).map((context) => context.message.body);
}

async function happensOneOf(emitter, events) {
  const [first, ...others] = events;
  // The other event ends the wait just as well.
  await happens(emitter, first, others).catch((error) => {
    if (error.message !== 'failed') throw error;
  });
}

/** Closes a connection and waits for the answer. */
export async function close(connection) {
  const closed = happens(connection, 'connection_close');
  connection.close();
  await closed;
}
