// Environment: MIDI_PORT and MIDI_SOCKET, where midi listens; MIDI_TLS_PORT and MIDI_TLS_CA, its port for TLS and who
// signs there; MIDI_HOST_PORT, the host's own port.
'use strict';

const { readFileSync } = require('node:fs');

const port = Number(process.env.MIDI_PORT);
const hostPort = Number(process.env.MIDI_HOST_PORT);
const socket = process.env.MIDI_SOCKET;
const tlsPort = Number(process.env.MIDI_TLS_PORT);
const ca = readFileSync(process.env.MIDI_TLS_CA);

// Longer than anything here takes: a guard against hangs.
const HANG = 90000;

const everyByte = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte));

async function waitUntil(done) {
  const until = Date.now() + HANG;
  while (!(await done())) {
    if (Date.now() > until) throw new Error('waited too long');
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

// Runs a program; a hang ends it, too.
function run(name, main) {
  setTimeout(() => {
    console.error('waited too long');
    process.exit(1);
  }, HANG).unref();
  main().then(
    () => console.log(`${name} ${require(`${name}/package.json`).version} on Node ${process.version}: right`),
    (error) => {
      console.error(error);
      process.exit(1);
    },
  );
}

module.exports = { HANG, port, hostPort, socket, tlsPort, ca, everyByte, waitUntil, run };
