// amqp10 goes through one scenario and prints what it has seen, as JSON: node node_amqp10.js SCENARIO QUEUE HOST PORT
'use strict';

const readline = require('readline');
const { Client, Policy, Constants, translator } = require('amqp10');
const DeliveryState = require('amqp10/lib/types/delivery_state');

const [scenario, queue, host, port] = process.argv.slice(2);
const url = `amqp://guest:guest@${host}:${port}`;
const manual = {
    attach: { rcvSettleMode: Constants.receiverSettleMode.settleOnDisposition },
    creditQuantum: 10,
    credit: Policy.Utils.CreditPolicies.DoNotRefresh,
};

// How a receiver is attached that has more to say of its source.
function receiving(source) {
    return { ...manual, attach: { ...manual.attach, source } };
}

async function connect(policy = {}) {
    const client = new Client(Policy.merge({ reconnect: { retries: 100, strategy: 'fibonacci' }, ...policy }, Policy.Default));
    await client.connect(url);
    return client;
}

// Sends numbers, each with what is said of it; resolves to how many were accepted.
async function sendNumbers(client, count, besides = () => ({})) {
    const sender = await client.createSender(queue);
    const bodies = Array.from({ length: count }, (_, index) => index);
    const sent = bodies.map((body) => sender.send({ header: { durable: true }, body, ...besides(body) }));
    const states = await Promise.all(sent);
    await sender.detach();
    return states.filter((state) => state instanceof DeliveryState.Accepted).length;
}

// The next messages.
function take(receiver, count) {
    const taken = [];
    return new Promise((resolve) => {
        const heard = (message) => {
            taken.push(message);
            if (taken.length === count) {
                receiver.removeListener('message', heard);
                resolve(taken);
            }
        };
        receiver.on('message', heard);
        receiver.addCredits(count);
    });
}

const scenarios = {
    async sends() {
        const client = await connect();
        const accepted = await sendNumbers(client, 3000);
        await client.disconnect();
        return { accepted };
    },

    async receives() {
        const client = await connect();
        const receiver = await client.createReceiver(queue); // which accepts by itself, and allows more at half
        const bodies = [];
        await new Promise((resolve) => {
            receiver.on('message', (message) => {
                bodies.push(message.body);
                if (bodies.length === 3000) resolve();
            });
        });
        await receiver.detach();
        await client.disconnect();
        return { inOrder: bodies.every((body, index) => body === index) };
    },

    async says_outcomes() {
        const client = await connect();
        await sendNumbers(client, 6);
        const receiver = await client.createReceiver(queue, manual);
        const taken = await take(receiver, 6);
        receiver.accept(taken[0]);
        receiver.release(taken[1]);
        receiver.modify(taken[2], { deliveryFailed: true });
        receiver.reject(taken[3], 'it is bad');
        receiver.modify(taken[4], { deliveryFailed: false });
        // and nothing of the last one
        const again = await take(receiver, 3);
        receiver.accept(again);
        await receiver.detach();
        await client.disconnect();
        return again.map((message) => [message.body, message.header.deliveryCount]);
    },

    async browses() {
        const client = await connect();
        await sendNumbers(client, 5);
        const options = receiving({ distributionMode: 'copy' });
        const [one, two] = [await client.createReceiver(queue, options), await client.createReceiver(queue, options)];
        const seen = [await take(one, 5), await take(two, 5)];
        const mode = String(one.remote.attach.source.distributionMode);
        await client.disconnect();
        return { mode, seen: seen.map((messages) => messages.map((message) => message.body)) };
    },

    async selects() {
        const client = await connect();
        await sendNumbers(client, 6, (number) => ({ applicationProperties: { odd: number % 2 === 1 } }));
        const selecting = (text) => receiving({ filter: { selector: translator(
            ['described', ['symbol', 'apache.org:selector-filter:string'], ['string', text]]) } });
        const receiver = await client.createReceiver(queue, selecting('odd = TRUE'));
        const taken = await take(receiver, 3);
        receiver.accept(taken);
        const refused = new Promise((resolve) => {
            client.once('client:errorReceived', (error) => resolve(String(error.condition)));
        }); // it takes the answering attach for success, before the detach that follows
        client.createReceiver(queue, selecting('odd = = TRUE'));
        const seen = { selected: taken.map((message) => message.body), refused: await refused };
        await client.disconnect();
        return seen;
    },

    async detaches() {
        const client = await connect();
        await sendNumbers(client, 3);
        const receiver = await client.createReceiver(queue, { ...manual, name: 'same' });
        await take(receiver, 2);
        await receiver.detach({ closed: false });
        const again = await client.createReceiver(queue, { ...manual, name: 'same' });
        const bodies = (await take(again, 3)).map((message) => message.body);
        await again.detach();
        const session = await client.createSession();
        const other = await client.createReceiver(queue, manual, session);
        const [message] = await take(other, 1);
        await session.end();
        await client.disconnect();
        return { bodies, inSession: message.body };
    },

    async reconnects() {
        const client = await connect();
        const accepted = await sendNumbers(client, 500);
        console.log('restart the broker');
        const back = new Promise((resolve) => {
            client.once('disconnected', () => client.once('connected', resolve));
        });
        await new Promise((resolve) => readline.createInterface({ input: process.stdin }).once('line', resolve));
        await back;
        const sender = await client.createSender(queue);
        await sender.send({ header: { durable: true }, body: 500 });
        const receiver = await client.createReceiver(queue, manual);
        const bodies = (await take(receiver, 501)).map((message) => message.body);
        await client.disconnect();
        return { accepted, inOrder: bodies.every((body, index) => body === index) };
    },
};

scenarios[scenario]().then((seen) => {
    console.log(JSON.stringify(seen));
    process.exit(0);
});
