// rhea goes through one scenario and prints what it has seen, as JSON: node rhea.js SCENARIO QUEUE HOST PORT
'use strict';

const readline = require('readline');
const rhea = require('rhea');

const [scenario, queue, host, port] = process.argv.slice(2);
const address = `/queues/${queue}`;

function once(emitter, event) {
    return new Promise((resolve) => emitter.once(event, resolve));
}

function connect(options = {}) {
    const container = rhea.create_container();
    return container.connect({ host, port, username: 'guest', password: 'guest', reconnect: false, ...options });
}

async function closed(connection) {
    connection.close();
    await once(connection, 'connection_close');
}

// Sends numbers as credit allows, each with what is said of it; resolves to how many had which outcome.
function sendNumbers(sender, count, besides = () => ({})) {
    const outcomes = {};
    let sent = 0;
    return new Promise((resolve) => {
        const counted = (name) => () => {
            outcomes[name] = (outcomes[name] || 0) + 1;
            if (Object.values(outcomes).reduce((all, each) => all + each, 0) === count) resolve(outcomes);
        };
        for (const name of ['accepted', 'rejected', 'released', 'modified']) sender.on(name, counted(name));
        const send = () => {
            while (sent < count && sender.sendable()) {
                sender.send({ body: sent, durable: true, ...besides(sent++) });
            }
        };
        sender.on('sendable', send);
        send();
    });
}

// The next messages, each with its delivery.
function take(receiver, count) {
    const taken = [];
    return new Promise((resolve) => {
        const heard = (context) => {
            taken.push({ message: context.message, delivery: context.delivery });
            if (taken.length === count) {
                receiver.removeListener('message', heard);
                resolve(taken);
            }
        };
        receiver.on('message', heard);
        receiver.add_credit(count);
    });
}

function manual(source, options = {}) {
    return { source, credit_window: 0, autoaccept: false, ...options };
}

const scenarios = {
    async sends() {
        const connection = connect();
        const outcomes = await sendNumbers(connection.open_sender(address), 3000);
        await closed(connection);
        return outcomes;
    },

    async sends_settled() {
        const connection = connect();
        const sender = connection.open_sender({ target: address, snd_settle_mode: 1 });
        await once(sender, 'sendable');
        for (let number = 0; number < 100; number++) sender.send({ body: number, durable: true });
        await closed(connection);
        return { sent: 100 };
    },

    async receives() {
        const connection = connect({ max_frame_size: 4096 });
        const receiver = connection.open_receiver(address); // it allows 500 more and accepts by itself
        const bodies = [];
        await new Promise((resolve) => {
            receiver.on('message', (context) => {
                bodies.push(context.message.body);
                if (bodies.length === 3000) resolve();
            });
        });
        await closed(connection);
        return { inOrder: bodies.every((body, index) => body === index) };
    },

    async says_outcomes() {
        const connection = connect();
        await sendNumbers(connection.open_sender(address), 6);
        const receiver = connection.open_receiver(manual(address));
        const taken = await take(receiver, 6);
        const says = [
            (delivery) => delivery.accept(),
            (delivery) => delivery.release(),
            (delivery) => delivery.release({ delivery_failed: true }),
            (delivery) => delivery.reject({ condition: 'test:bad', description: 'it is bad' }),
            (delivery) => delivery.modified({ delivery_failed: false }),
        ]; // and nothing of the last one
        for (const [index, say] of says.entries()) {
            say(taken[index].delivery);
            await new Promise(setImmediate); // rhea 3.0.5 says the outcome of the first of two in one go for both
        }
        const again = await take(receiver, 3);
        for (const { delivery } of again) delivery.accept();
        await closed(connection);
        return again.map(({ message }) => [message.body, message.delivery_count]);
    },

    async settles_second() {
        const connection = connect();
        await sendNumbers(connection.open_sender({ target: address, rcv_settle_mode: 1 }), 5);
        const receiver = connection.open_receiver(manual(address, { rcv_settle_mode: 1 }));
        const taken = await take(receiver, 5);
        let settled = 0;
        const all = new Promise((resolve) => {
            receiver.on('settled', () => {
                if (++settled === 5) resolve();
            });
        });
        for (const { delivery } of taken) delivery.update(false, rhea.message.accepted().described());
        await all;
        await closed(connection);
        return { settled };
    },

    async drains() {
        const connection = connect();
        const receiver = connection.open_receiver(manual(address));
        const bodies = [];
        receiver.on('message', (context) => {
            bodies.push(context.message.body);
            context.delivery.accept();
        });
        const drained = async (credit) => {
            receiver.add_credit(credit);
            receiver.drain_credit();
            await once(receiver, 'receiver_drained');
            return bodies.splice(0).length;
        };
        const counts = [await drained(10)];
        await sendNumbers(connection.open_sender(address), 5);
        counts.push(await drained(3), await drained(10), await drained(10));
        await closed(connection);
        return counts;
    },

    async browses() {
        const connection = connect();
        await sendNumbers(connection.open_sender(address), 5);
        const options = manual({ address, distribution_mode: 'copy' });
        const [one, two] = [connection.open_receiver(options), connection.open_receiver(options)];
        const seen = [await take(one, 5), await take(two, 5)];
        const mode = one.remote.attach.source.distribution_mode;
        await closed(connection);
        return { mode, seen: seen.map((taken) => taken.map(({ message }) => message.body)) };
    },

    async selects() {
        const connection = connect();
        const sender = connection.open_sender(address);
        await sendNumbers(sender, 6, (number) => ({ application_properties: { odd: number % 2 === 1 } }));
        const filter = rhea.filter.selector('odd = TRUE');
        const receiver = connection.open_receiver(manual({ address, filter }));
        const selected = (await take(receiver, 3)).map(({ message, delivery }) => {
            delivery.accept();
            return message.body;
        });
        const wrong = connection.open_receiver(manual({ address, filter: rhea.filter.selector('odd = = TRUE') }));
        await once(wrong, 'receiver_error');
        await closed(connection);
        return { selected, refused: wrong.error.condition };
    },

    async detaches() {
        const connection = connect();
        const sender = connection.open_sender({ target: address, name: 'same' });
        await sendNumbers(sender, 3);
        const receiver = connection.open_receiver(manual(address, { name: 'same' }));
        await take(receiver, 2);
        receiver.detach();
        await once(receiver, 'receiver_close');
        const again = connection.open_receiver(manual(address, { name: 'same' }));
        const bodies = (await take(again, 3)).map(({ message }) => message.body);
        again.close();
        await once(again, 'receiver_close');
        const session = connection.create_session();
        session.begin();
        const other = session.open_receiver(manual(address));
        const [{ message }] = await take(other, 1);
        session.close();
        await once(session, 'session_close');
        await closed(connection);
        return { bodies, inSession: message.body };
    },

    async carries() {
        const connection = connect({ max_frame_size: 16384 });
        const sender = connection.open_sender(address);
        const receiver = connection.open_receiver(manual(address));
        await once(sender, 'sendable');
        const sent = Buffer.alloc(900000, 'abcdefg');
        const properties = { text: 'a', number: 7, truth: true };
        sender.send({
            message_id: rhea.generate_uuid(), subject: 'subject', reply_to: 'replies', correlation_id: 'one',
            content_type: 'text/plain', application_properties: properties, priority: 6, durable: true,
            message_annotations: { 'x-opt-mine': 'mine' }, body: rhea.message.data_section(sent),
        });
        const [{ message }] = await take(receiver, 1);
        await closed(connection);
        const annotations = message.message_annotations;
        return {
            same: Buffer.compare(message.body.content, sent) === 0,
            said: [message.subject, message.reply_to, message.correlation_id, message.content_type],
            properties: message.application_properties,
            header: [message.durable, message.priority, message.first_acquirer, message.delivery_count],
            annotations: [annotations['x-opt-mine'], annotations['x-exchange'], annotations['x-routing-key']],
        };
    },

    async is_refused() {
        const connection = connect();
        const sender = connection.open_sender('/queues/nowhere');
        await once(sender, 'sender_error');
        const receiver = connection.open_receiver('/queues/nowhere');
        await once(receiver, 'receiver_error');
        const anywhere = connection.open_sender({ target: {} });
        await once(anywhere, 'sendable');
        anywhere.send({ to: '/queues/nowhere', body: 1 });
        const { delivery } = await once(anywhere, 'rejected');
        await closed(connection);
        const stranger = connect({ password: 'wrong' });
        const { error } = await once(stranger, 'connection_error');
        return [sender.error.condition, receiver.error.condition, delivery.remote_state.error.condition, error.condition];
    },

    async reconnects() {
        const connection = connect({ reconnect: 50 });
        const sender = connection.open_sender(address);
        const { accepted } = await sendNumbers(sender, 500);
        console.log('restart the broker');
        const gone = once(connection, 'disconnected');
        await once(readline.createInterface({ input: process.stdin }), 'line');
        await gone;
        if (!sender.sendable()) await once(sender, 'sendable');
        sender.send({ body: 500, durable: true });
        await once(sender, 'accepted');
        const receiver = connection.open_receiver(manual(address));
        const bodies = (await take(receiver, 501)).map(({ message }) => message.body);
        await closed(connection);
        return { accepted, inOrder: bodies.every((body, index) => body === index) };
    },
};

scenarios[scenario]().then((seen) => {
    console.log(JSON.stringify(seen));
    process.exit(0);
});
