// One scenario of MQTT.js: subscribe, publish to oneself, and print what came, as one JSON line.
//
// Standard input: {url, options, filter, topic, payload, qos, retain, properties, ca, cert, key}.

const fs = require('node:fs')
const path = require('node:path')
const { createRequire } = require('node:module')

const home = process.env.EDGEFL_MQTT_JS
const mqtt = createRequire(path.join(home, 'package.json'))('mqtt')

const wanted = JSON.parse(fs.readFileSync(0, 'utf8'))
const options = { reconnectPeriod: 0, connectTimeout: 5000, ...wanted.options }
for (const name of ['ca', 'cert', 'key']) {
  if (wanted[name]) options[name] = fs.readFileSync(wanted[name])
}

function end (result, code) {
  process.stdout.write(JSON.stringify(result) + '\n', () => process.exit(code))
}

async function run () {
  const client = mqtt.connect(wanted.url, options)
  client.on('error', (error) => end({ error: error.message, code: error.code }, 1))
  const arrived = new Promise((resolve) => {
    client.on('message', (topic, payload, packet) => resolve({
      topic,
      payload: payload.toString('base64'),
      qos: packet.qos,
      retain: packet.retain,
      properties: packet.properties && {
        userProperties: packet.properties.userProperties,
        responseTopic: packet.properties.responseTopic,
        contentType: packet.properties.contentType
      }
    }))
  })
  const connack = await new Promise((resolve) => client.once('connect', resolve))
  const granted = await client.subscribeAsync(wanted.filter, { qos: wanted.qos })
  await client.publishAsync(wanted.topic, Buffer.from(wanted.payload, 'base64'), {
    qos: wanted.qos,
    retain: wanted.retain,
    properties: wanted.properties
  })
  const message = wanted.awaits ? await arrived : null
  await client.endAsync()
  end({ message, granted: granted.map((one) => one.qos), session: connack.sessionPresent }, 0)
}

setTimeout(() => end({ error: 'nothing arrived' }, 1), 8000)
run().catch((error) => end({ error: error.message, code: error.code }, 1))
