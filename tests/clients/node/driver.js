// The official Node.js client, told by lines what to do.
//
// {"id": 7, "do": "send", ...} is answered by {"id": 7, "gave": ...} or {"id": 7, "refused": "Class: text"}; what a
// client does by itself is told by {"by": "its name", "event": ...}.  Ends when its input ends.
'use strict';
const readline = require('node:readline');
const { Producer, SimpleConsumer, PushConsumer, ConsumeResult, FilterExpression } = require('rocketmq-client-nodejs');

const clients = new Map();
const held = new Map();
const attempts = new Map();
const logger = { info() {}, debug() {}, warn: console.error, error: console.error, close() {} };

function write(line) {
  process.stdout.write(JSON.stringify(line) + '\n');
}

function told(view) {
  return {
    body: view.body.toString('utf8'),
    id: view.messageId,
    topic: view.topic,
    tag: view.tag || null,
    keys: view.keys,
    properties: Object.fromEntries(view.properties),
    due_ms: view.deliveryTimestamp ? view.deliveryTimestamp.getTime() : null,
    attempt: view.deliveryAttempt,
  };
}

function message(topic, fields) {
  return {
    topic,
    body: Buffer.from(fields.body),
    ...(fields.tag && { tag: fields.tag }),
    ...(fields.keys && { keys: fields.keys }),
    ...(fields.properties && { properties: new Map(Object.entries(fields.properties)) }),
    ...(fields.group && { messageGroup: fields.group }),
    ...(fields.due_ms && { deliveryTimestamp: new Date(fields.due_ms) }),
  };
}

function configuration(asked) {
  return {
    endpoints: asked.endpoint,
    namespace: '',
    logger,
    sslEnabled: asked.tls,
    ...(asked.key && { sessionCredentials: { accessKey: asked.key, accessSecret: asked.secret } }),
  };
}

const SQL = 2; // FilterType.SQL of the protocol, which the package does not export

function subscriptions(asked) {
  return new Map([[asked.topic, asked.sql ? new FilterExpression(asked.filter, SQL) : asked.filter]]);
}

// Says of a transaction what the first word of the body says.
function checker(name) {
  return {
    async check(view) {
      const fields = told(view);
      write({ by: name, event: 'checked', at_ms: Date.now(), ...fields });
      return { COMMIT: 1, ROLLBACK: 2 }[fields.body.split(' ')[0]] || 0;
    },
  };
}

async function start(name, client) {
  clients.set(name, client);
  await client.startup();
  return true;
}

const verbs = {
  producer: asked =>
    start(asked.name, new Producer({
      ...configuration(asked),
      topic: asked.topic,
      ...(asked.checks && { checker: checker(asked.name) }),
    })),

  // A message whose transaction ends as `end` says; '': it does not.
  async transaction(asked) {
    const producer = clients.get(asked.by);
    const transaction = producer.beginTransaction();
    const receipt = await producer.send(message(asked.topic, asked.message), transaction);
    if (asked.end) await transaction[asked.end]();
    return receipt.messageId;
  },

  async send(asked) {
    const producer = clients.get(asked.by);
    const receipts = [];
    if (asked.async) {
      receipts.push(...await Promise.all(asked.messages.map(m => producer.send(message(asked.topic, m)))));
    } else {
      for (const each of asked.messages) receipts.push(await producer.send(message(asked.topic, each)));
    }
    return receipts.map(receipt => ({ id: receipt.messageId, handle: receipt.recallHandle || null }));
  },

  recall: async asked =>
    (await clients.get(asked.by).recallMessage(asked.topic, asked.handle)).messageId,

  simple: asked =>
    start(asked.name, new SimpleConsumer({
      ...configuration(asked),
      consumerGroup: asked.group,
      subscriptions: subscriptions(asked),
      awaitDuration: asked.await_ms,
    })),

  async receive(asked) {
    const views = await clients.get(asked.by).receive(asked.max, asked.invisible_ms);
    return views.map(view => {
      const token = `${view.messageId}/${view.deliveryAttempt}`;
      held.set(token, view);
      return { ...told(view), token };
    });
  },

  async ack(asked) {
    await clients.get(asked.by).ack(held.get(asked.token));
    return true;
  },

  async change(asked) {
    await clients.get(asked.by).changeInvisibleDuration(held.get(asked.token), asked.invisible_ms);
    return true;
  },

  // Fails each message whose body begins with "fail N" N times.
  push: asked =>
    start(asked.name, new PushConsumer({
      ...configuration(asked),
      consumerGroup: asked.group,
      subscriptions: subscriptions(asked),
      messageListener: {
        async consume(view) {
          const fields = told(view);
          write({ by: asked.name, event: 'received', at_ms: Date.now(), ...fields });
          const [word, times] = fields.body.split(' ');
          if (word !== 'fail') return ConsumeResult.SUCCESS;
          const key = asked.name + view.messageId;
          attempts.set(key, (attempts.get(key) || 0) + 1);
          return attempts.get(key) > Number(times) ? ConsumeResult.SUCCESS : ConsumeResult.FAILURE;
        },
      },
    })),

  async close(asked) {
    const client = clients.get(asked.name);
    clients.delete(asked.name);
    await client.shutdown();
    return true;
  },
};

async function answer(text) {
  const asked = JSON.parse(text);
  try {
    write({ id: asked.id, gave: await verbs[asked.do](asked) });
  } catch (error) {
    console.error(error);
    write({ id: asked.id, refused: `${error.name}: ${error.message}` });
  }
}

process.on('unhandledRejection', error => console.error('unhandled', error));
readline.createInterface({ input: process.stdin }).on('line', answer).on('close', () => process.exit(0));
