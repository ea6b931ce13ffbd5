// One broker process of its own: free ports, a temporary folder, ended by its process id.

import { spawn } from 'node:child_process';
import { appendFileSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

const ROOT = join(dirname(fileURLToPath(import.meta.url)), '..', '..');
const BINARY = process.env.POSTROAD_BIN ?? join(ROOT, 'target', 'debug', 'postroad');
const PATIENCE_MS = 30_000;

/** Starts a broker with the given configuration; `[auto_create]` is on. */
export async function startBroker(config = '') {
  const broker = new Broker();
  [broker.port, broker.httpPort] = await freePorts(2);
  writeFileSync(
    broker.configFile,
    `[broker]\nname = "A"\n[auto_create]\nenabled = true\n` +
      `[[listener]]\nprotocol = "amqp"\naddress = "127.0.0.1:${broker.port}"\n` +
      `[[listener]]\nprotocol = "http"\naddress = "127.0.0.1:${broker.httpPort}"\n${config}`,
  );
  await broker.start();
  return broker;
}

class Broker {
  folder = mkdtempSync(join(tmpdir(), 'postroad-node-'));
  configFile = join(this.folder, 'broker.toml');
  logFile = join(this.folder, 'broker.log');

  async start() {
    const log = openSync(this.logFile, 'a');
    const data = join(this.folder, 'data');
    this.process = spawn(BINARY, ['serve', '--config', this.configFile, '--data-dir', data], {
      stdio: ['ignore', log, log],
    });
    this.ended = new Promise((resolve) => {
      this.process.once('exit', resolve);
      this.process.once('error', resolve);
    });
    const deadline = Date.now() + PATIENCE_MS;
    while (!(await this.ready())) {
      if (this.process.exitCode !== null || Date.now() > deadline) {
        throw new Error(`the broker did not start:\n${readFileSync(this.logFile, 'utf8')}`);
      }
      await pause(10);
    }
  }

  async ready() {
    return fetch(`http://127.0.0.1:${this.httpPort}/readyz`).then((answer) => answer.ok, () => false);
  }

  async kill() {
    this.process.kill('SIGKILL');
    await this.ended;
  }

  /** Ends the broker and removes its folder. */
  async end() {
    await this.kill();
    rmSync(this.folder, { recursive: true, force: true });
  }

  /** One REST call that has to succeed; path segments are encoded here. */
  async rest(method, segments, body) {
    const path = segments.map(encodeURIComponent).join('/');
    const answer = await fetch(`http://127.0.0.1:${this.httpPort}/api/v1/${path}`, {
      method,
      headers: { 'content-type': 'application/json' },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
    return text ? JSON.parse(text) : null;
  }

  /** How many messages a queue or events a channel holds. */
  async depth(kind, name) {
    return (await this.rest('GET', [kind, name])).depth;
  }
}

/** Holds all of them at once, so that none is given twice. */
async function freePorts(count) {
  const servers = await Promise.all(
    Array.from({ length: count }, async () => {
      const server = createServer();
      await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
      return server;
    }),
  );
  const ports = servers.map((server) => server.address().port);
  await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))));
  return ports;
}

/** Waits until `look` returns `expected`. */
export async function eventually(look, expected) {
  const deadline = Date.now() + PATIENCE_MS;
  for (;;) {
    const seen = await look();
    if (seen === expected) return;
    if (Date.now() > deadline) throw new Error(`expected ${expected}, last saw ${seen}`);
    await pause(20);
  }
}

/** Records that the calling test has proved the ids; its last statement. */
export function proves(...ids) {
  for (const id of ids) {
    if (!/^([A-Z]{2,6}-[A-Z]?\d{1,4}|(joins|objects|addressing|network|topics):[A-Z]?\d{1,4}(\.\d{1,4})*)$/.test(id)) {
      throw new Error(`not the id of a requirement or acceptance row: ${id}`);
    }
  }
  const file = process.env.POSTROAD_SPEC_IDS;
  if (file) appendFileSync(file, ids.map((id) => `${id}\n`).join(''));
}
