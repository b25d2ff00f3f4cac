// The Node half of `graphile_worker.py`: a client that takes requests as lines of JSON, or a worker.
// Usage: PEERS_URL=… PEERS_NODE=FOLDER_OF_PACKAGES node graphile_worker.cjs client|work
const fs = require("fs");
const path = require("path");
const readline = require("readline");
const { createRequire } = require("module");

const packages = createRequire(path.join(process.env.PEERS_NODE, "package.json"));
const { Logger, makeWorkerUtils, run, runMigrations } = packages("graphile-worker");
const connectionString = process.env.PEERS_URL;
const BATCH = 5000;

// The moments at which handlers start, in a file as `hits.py` has it: a counter, then a double for each.
const STARTS_MAX = 200000;
let file;
let bytes;
let count = 0;
let written = 0;
let isWriting = false;

function now() {
  return (performance.timeOrigin + performance.now()) / 1000;
}

function hit(ref) {
  const seconds = now() - ref;
  if (file === undefined) {
    file = fs.openSync(path.join(process.env.PEERS_HITS, `${process.pid}.hits`), "w+");
    fs.ftruncateSync(file, 8 * (STARTS_MAX + 1));
    bytes = Buffer.alloc(8 * (STARTS_MAX + 1));
  }
  count += 1;
  bytes.writeDoubleLE(seconds, 8 * count);
  if (!isWriting) {
    isWriting = true;
    setImmediate(write);
  }
}

function write() {
  isWriting = false;
  fs.writeSync(file, bytes, 8 * (written + 1), 8 * (count - written), 8 * (written + 1));
  written = count;
  bytes.writeBigInt64LE(BigInt(count), 0);
  fs.writeSync(file, bytes, 0, 8, 0);
}

async function work() {
  await run({
    preset: {
      worker: {
        connectionString,
        concurrentJobs: 24,
        maxPoolSize: 25,
        pollInterval: 1000,
        localQueue: { size: 500 },
        completeJobBatchDelay: 0,
        failJobBatchDelay: 0,
      },
    },
    taskList: { noop: async (payload) => hit(payload.ref) },
    logger: new Logger(() => () => {}),
    noHandleSignals: true,
  });
}

let utils;

async function submitMany(number, ref, due) {
  const runAt = due ? new Date(due * 1000) : undefined;
  for (let start = 0; start < number; start += BATCH) {
    const length = Math.min(BATCH, number - start);
    await utils.addJobs(Array.from({ length }, () => ({ identifier: "noop", payload: { ref }, runAt })));
  }
}

const requests = {
  create: () => runMigrations({ connectionString }),
  open: async () => {
    utils = await makeWorkerUtils({ pgPool: new (packages("pg").Pool)({ connectionString, max: 2 }) });
  },
  submit_many: ({ number, ref, due }) => submitMany(number, ref, due),
  // Without a reference it is the moment at which the request has arrived: the pipe is none of the system's.
  submit: ({ ref }) => utils.addJob("noop", { ref: ref ?? now() }),
  submit_each: async ({ number }) => {
    for (let each = 0; each < number; each += 1) await utils.addJob("noop", { ref: 0 });
  },
};

async function serve() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const request = JSON.parse(line);
    try {
      await requests[request.op](request);
      process.stdout.write("{}\n");
    } catch (error) {
      process.stdout.write(JSON.stringify({ error: String((error && error.stack) || error) }) + "\n");
    }
  }
  process.exit(0);
}

if (process.argv[2] === "work") work();
else serve();
