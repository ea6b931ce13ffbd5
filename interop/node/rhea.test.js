// The broker under rhea: send and receive, outcomes, credit, durable subscriptions, filters, large messages, refusals.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { after, afterEach, before, test } from 'node:test';

import rhea from 'rhea';

import { eventually, proves, startBroker } from './broker.js';
import { close, connect, drain, openReceiver, openSender, receive, send } from './client.js';

let broker;
const connections = [];
let names = 0;

before(async () => {
  broker = await startBroker();
});
after(() => broker.end());
// rhea's heartbeat goes on for a connection that is cut but not closed, and would keep the process alive.
afterEach(() => Promise.all(connections.splice(0).map((connection) => connection.is_closed() || close(connection))));

async function client(options) {
  const connection = await connect(broker.port, options);
  connections.push(connection);
  return connection;
}

/** A name that no other test uses. */
const fresh = (prefix) => `${prefix}-${(names += 1)}`;
const queue = (address) => ({ address, capabilities: ['queue'] });
const topic = (address) => ({ address, capabilities: ['topic'] });
const durable = (address) => ({ ...topic(address), durable: 2, expiry_policy: 'never' });

test('a message comes back as it was sent', async () => {
  const connection = await client();
  const name = fresh('q');
  const sender = await openSender(connection, queue(name));
  const message = {
    body: { text: 'ä', list: [1, 2, 3], flag: true },
    message_id: 'm1',
    correlation_id: 'c1',
    subject: 's',
    reply_to: 'back',
    durable: true,
    priority: 7,
    application_properties: { i: 1, t: 'text' },
  };
  assert.equal((await send(sender, message)).outcome, 'accepted');
  const receiver = await openReceiver(connection, queue(name));
  const context = await receive(receiver);
  context.delivery.accept();
  for (const [field, value] of Object.entries(message)) assert.deepEqual(context.message[field], value, field);
  await eventually(() => broker.depth('queues', name), 0);
});

test('outcomes: released and modified come back, rejected goes to the dead letters', async () => {
  const connection = await client();
  const name = fresh('q');
  const sender = await openSender(connection, queue(name));
  await send(sender, { body: 'x' });
  const receiver = await openReceiver(connection, queue(name));
  (await receive(receiver)).delivery.release({ delivery_failed: false });
  let context = await receive(receiver);
  assert.equal(context.message.delivery_count ?? 0, 0);
  context.delivery.modified({ delivery_failed: true, undeliverable_here: false });
  context = await receive(receiver);
  assert.equal(context.message.delivery_count, 1);
  context.delivery.reject({ condition: 'app:bad', description: 'cannot be read' });
  await eventually(() => broker.depth('queues', name), 0);
  const letters = await openReceiver(connection, queue('DLQ'));
  const letter = await receive(letters);
  letter.delivery.accept();
  assert.equal(letter.message.body, 'x');
  assert.equal(String(letter.message.message_annotations['x-opt-postroad-dl-reason']), 'REJECTED');
});

test('credit is honoured exactly and drain uses it up', async () => {
  const connection = await client();
  const name = fresh('q');
  const sender = await openSender(connection, queue(name));
  for (let number = 1; number <= 10; number += 1) await send(sender, { body: number });
  const receiver = await openReceiver(connection, queue(name));
  receiver.add_credit(3);
  for (const expected of [1, 2, 3]) assert.equal((await receive(receiver, 0)).message.body, expected);
  assert.deepEqual(await drain(receiver, 5), [4, 5, 6, 7, 8]);
  assert.deepEqual(await drain(receiver, 5), [9, 10]);
  assert.deepEqual(await drain(receiver, 5), []);
  assert.equal(receiver.credit, 0);
});

test('a durable subscription collects while its client is away, and close ends it', async () => {
  const name = fresh('t');
  let connection = await client({ container_id: 'node-cid' });
  const first = await openReceiver(connection, durable(name), { name: 'S' });
  first.detach();
  await close(connection);

  const publisher = await openSender(await client(), topic(name));
  for (const body of [1, 2, 3]) await send(publisher, { body });

  connection = await client({ container_id: 'node-cid' });
  const again = await openReceiver(connection, durable(name), { name: 'S' });
  for (const expected of [1, 2, 3]) {
    const context = await receive(again);
    assert.equal(context.message.body, expected);
    context.delivery.accept();
  }
  again.close();
  await close(connection);
  await send(publisher, { body: 4 });
  await eventually(() => broker.depth('channels', name), 0);
});

test('a selector passes what matches only', async () => {
  const connection = await client();
  const name = fresh('q');
  const sender = await openSender(connection, queue(name));
  for (const color of ['red', 'blue', 'red']) {
    await send(sender, { body: color, application_properties: { color } });
  }
  const source = { ...queue(name), filter: rhea.filter.selector("color = 'red'") };
  const receiver = await openReceiver(connection, source);
  assert.deepEqual(await drain(receiver), ['red', 'red']);
});

test('a selector that does not parse is refused', async () => {
  const connection = await client();
  const source = { ...queue(fresh('q')), filter: rhea.filter.selector('a = = 1') };
  await assert.rejects(openReceiver(connection, source), { condition: 'amqp:invalid-field' });
});

test('a message of 5 MiB crosses many frames', async () => {
  const connection = await client({ max_frame_size: 8192 });
  const name = fresh('q');
  const body = randomBytes(5 * 1024 * 1024);
  const sender = await openSender(connection, queue(name));
  assert.equal((await send(sender, { body, durable: true })).outcome, 'accepted');
  const receiver = await openReceiver(connection, queue(name));
  const context = await receive(receiver);
  assert.equal(Buffer.compare(context.message.body, body), 0);
  context.delivery.accept();
});

test('presettled messages in both directions', async () => {
  const connection = await client();
  const name = fresh('q');
  const sender = await openSender(connection, queue(name), { snd_settle_mode: 1 });
  sender.send({ body: 'fast' });
  const receiver = await openReceiver(connection, queue(name), { snd_settle_mode: 1 });
  assert.equal((await receive(receiver)).message.body, 'fast');
  await eventually(() => broker.depth('queues', name), 0);
});

test('an unknown native object is not found, and the connection lives on', async () => {
  const connection = await client();
  const name = fresh('c');
  await broker.rest('PUT', ['channels', name], {});
  await assert.rejects(openReceiver(connection, { address: `${name}::none` }), { condition: 'amqp:not-found' });
  assert.equal((await send(await openSender(connection, queue(fresh('q'))), { body: 1 })).outcome, 'accepted');
});

test('request and reply over a temporary queue and the anonymous relay', async () => {
  const name = fresh('service');
  const service = await client();
  const requests = await openReceiver(service, queue(name));
  const replies = await openSender(service, {});

  const requester = await client();
  const answers = await openReceiver(requester, { dynamic: true });
  const reply_to = answers.source.address;
  await send(await openSender(requester, queue(name)), { body: 'question', reply_to, correlation_id: 7 });

  const { message, delivery } = await receive(requests);
  delivery.accept();
  const { outcome } = await send(replies, { to: message.reply_to, correlation_id: message.correlation_id, body: '42' });
  assert.equal(outcome, 'accepted');
  const answer = await receive(answers);
  assert.equal(answer.message.body, '42');
  assert.equal(answer.message.correlation_id, 7);
});

test('a join carries what rhea publishes', async () => {
  const source = fresh('c');
  const destination = fresh('q');
  await broker.rest('PUT', ['channels', source], {});
  await broker.rest('PUT', ['queues', destination], {});
  await broker.rest('POST', ['joins'], { source, destination, filter: "region = 'EU'" });
  const connection = await client();
  const sender = await openSender(connection, topic(source));
  for (const region of ['EU', 'US']) await send(sender, { body: region, application_properties: { region } });
  const receiver = await openReceiver(connection, queue(destination));
  assert.equal((await receive(receiver)).message.body, 'EU');
  assert.deepEqual(await drain(receiver), []);
  proves('JOIN-1', 'FIL-1');
});
