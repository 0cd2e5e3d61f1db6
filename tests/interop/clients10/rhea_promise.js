// rhea-promise goes through one scenario and prints what it has seen, as JSON:
// node rhea_promise.js SCENARIO QUEUE HOST PORT
'use strict';

const readline = require('readline');
const { Connection, ReceiverEvents, filter } = require('rhea-promise');

const [scenario, queue, host, port] = process.argv.slice(2);
const address = `/queues/${queue}`;

function connect(options = {}) {
    return new Connection({ host, port: Number(port), username: 'guest', password: 'guest', reconnect: false, ...options }).open();
}

function once(emitter, event) {
    return new Promise((resolve) => emitter.once(event, resolve));
}

// Sends numbers, each with what is said of it, as many at once as may be; resolves to how many were accepted.
async function sendNumbers(connection, count, besides = () => ({})) {
    const sender = await connection.createAwaitableSender({ target: { address } });
    let accepted = 0;
    for (let from = 0; from < count; from += 100) {
        const bodies = Array.from({ length: Math.min(100, count - from) }, (_, index) => from + index);
        const sent = await Promise.all(bodies.map((body) => sender.send({ body, durable: true, ...besides(body) })));
        accepted += sent.filter((delivery) => delivery.remote_settled).length;
    }
    await sender.close();
    return accepted;
}

function receiverOf(connection, options = {}) {
    return connection.createReceiver({ source: { address }, credit_window: 0, autoaccept: false, ...options });
}

// The next messages, each with its delivery.
function take(receiver, count) {
    const taken = [];
    return new Promise((resolve) => {
        const heard = (context) => {
            taken.push({ message: context.message, delivery: context.delivery });
            if (taken.length === count) {
                receiver.removeListener(ReceiverEvents.message, heard);
                resolve(taken);
            }
        };
        receiver.on(ReceiverEvents.message, heard);
        receiver.addCredit(count);
    });
}

function bodiesOf(taken) {
    return taken.map(({ message }) => message.body);
}

async function conditionOf(promise) {
    try {
        await promise;
        return 'none';
    } catch (error) {
        return error.condition || (error.innerError && error.innerError.condition) || String(error);
    }
}

const scenarios = {
    async sends() {
        const connection = await connect();
        const accepted = await sendNumbers(connection, 3000);
        await connection.close();
        return { accepted };
    },

    async receives() {
        const connection = await connect();
        const receiver = await connection.createReceiver({
            source: { address }, credit_window: 100, onMessage: () => {}, onError: () => {},
        });
        const bodies = [];
        await new Promise((resolve) => {
            receiver.on(ReceiverEvents.message, (context) => {
                bodies.push(context.message.body);
                if (bodies.length === 3000) resolve();
            });
        });
        await receiver.close();
        await connection.close();
        return { inOrder: bodies.every((body, index) => body === index) };
    },

    async says_outcomes() {
        const connection = await connect();
        await sendNumbers(connection, 6);
        const receiver = await receiverOf(connection);
        const taken = await take(receiver, 6);
        const says = [
            (delivery) => delivery.accept(),
            (delivery) => delivery.release(),
            (delivery) => delivery.modified({ delivery_failed: true, undeliverable_here: false }),
            (delivery) => delivery.reject({ condition: 'test:bad', description: 'it is bad' }),
            (delivery) => delivery.modified({ delivery_failed: false }),
        ]; // and nothing of the last one
        for (const [index, say] of says.entries()) {
            say(taken[index].delivery);
            await new Promise(setImmediate); // rhea 3.0.5 says the outcome of the first of two in one go for both
        }
        const again = await take(receiver, 3);
        for (const { delivery } of again) delivery.accept();
        await receiver.close();
        await connection.close();
        return again.map(({ message }) => [message.body, message.delivery_count]);
    },

    async drains() {
        const connection = await connect();
        const receiver = await receiverOf(connection);
        const bodies = [];
        receiver.on(ReceiverEvents.message, (context) => {
            bodies.push(context.message.body);
            context.delivery.accept();
        });
        const drained = async (credit) => {
            receiver.addCredit(credit);
            receiver.drainCredit();
            await once(receiver, ReceiverEvents.receiverDrained);
            return bodies.splice(0).length;
        };
        const counts = [await drained(10)];
        await sendNumbers(connection, 5);
        counts.push(await drained(3), await drained(10), await drained(10));
        await connection.close();
        return counts;
    },

    async browses() {
        const connection = await connect();
        await sendNumbers(connection, 5);
        const options = { source: { address, distribution_mode: 'copy' } };
        const [one, two] = [await receiverOf(connection, options), await receiverOf(connection, options)];
        const seen = [bodiesOf(await take(one, 5)), bodiesOf(await take(two, 5))];
        const mode = one.source.distribution_mode;
        await connection.close();
        return { mode, seen };
    },

    async selects() {
        const connection = await connect();
        await sendNumbers(connection, 6, (number) => ({ application_properties: { odd: number % 2 === 1 } }));
        const selecting = (text) => ({ source: { address, filter: filter.selector(text) } });
        const receiver = await receiverOf(connection, selecting('odd = TRUE'));
        const taken = await take(receiver, 3);
        for (const { delivery } of taken) delivery.accept();
        const refused = await new Promise((resolve) => {
            const onError = (context) => resolve(context.receiver.error.condition);
            receiverOf(connection, { ...selecting('odd = = TRUE'), onError });
        });
        await connection.close();
        return { selected: bodiesOf(taken), refused };
    },

    async detaches() {
        const connection = await connect();
        await sendNumbers(connection, 3);
        const receiver = await receiverOf(connection, { name: 'same' });
        await take(receiver, 2);
        await receiver.close({ closeSession: false });
        const again = await receiverOf(connection, { name: 'same' });
        const bodies = bodiesOf(await take(again, 3));
        await again.close();
        const session = await connection.createSession();
        const other = await session.createReceiver({ source: { address }, credit_window: 0, autoaccept: false });
        const [inSession] = bodiesOf(await take(other, 1));
        await session.close();
        await connection.close();
        return { bodies, inSession };
    },

    async is_refused() {
        const connection = await connect();
        const missing = { address: '/queues/nowhere' };
        const seen = [await conditionOf(connection.createAwaitableSender({ target: missing }))];
        const refused = new Promise((resolve) => {
            const onError = (context) => resolve(context.receiver.error.condition);
            connection.createReceiver({ source: missing, credit_window: 0, onError });
        });
        seen.push(await refused); // it takes the answering attach for success, before the detach that follows
        const anywhere = await connection.createAwaitableSender({ target: {} });
        seen.push(await conditionOf(anywhere.send({ to: '/queues/nowhere', body: 1 })));
        await connection.close();
        seen.push(await conditionOf(connect({ password: 'wrong' })));
        return seen;
    },

    async reconnects() {
        const connection = await connect({ reconnect: 50 });
        const accepted = await sendNumbers(connection, 500);
        console.log('restart the broker');
        const gone = once(connection, 'disconnected');
        const back = once(connection, 'connection_open');
        await once(readline.createInterface({ input: process.stdin }), 'line');
        await gone;
        await back;
        const sender = await connection.createAwaitableSender({ target: { address } });
        await sender.send({ body: 500, durable: true });
        const receiver = await receiverOf(connection);
        const bodies = bodiesOf(await take(receiver, 501));
        await connection.close();
        return { accepted, inOrder: bodies.every((body, index) => body === index) };
    },
};

scenarios[scenario]().then((seen) => {
    console.log(JSON.stringify(seen));
    process.exit(0);
});
