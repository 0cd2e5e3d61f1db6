// What an application in Java does with a broker, in steps; each prints a line. Arguments: host, port.

import com.rabbitmq.client.*;
import java.io.IOException;
import java.util.*;
import java.util.concurrent.*;

public class Client {
    static final int PATIENCE_S = 60;
    static final AMQP.BasicProperties PERSISTENT = MessageProperties.PERSISTENT_BASIC;

    final Connection connection;
    final Channel channel;

    Client(String host, int port) throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setHost(host);
        factory.setPort(port);
        factory.setRequestedHeartbeat(10);
        factory.setAutomaticRecoveryEnabled(true);
        factory.setTopologyRecoveryEnabled(true);
        factory.setNetworkRecoveryInterval(200);
        connection = factory.newConnection("orders");
        channel = connection.createChannel();
    }

    public static void main(String[] arguments) throws Exception {
        Client client = new Client(arguments[0], Integer.parseInt(arguments[1]));
        step("connected");
        client.declare();
        client.confirm();
        client.takeBack();
        client.carryMuch();
        client.consume();
        client.requeue();
        client.deadLetter();
        client.get();
        client.callDirectly();
        client.transact();
        client.loseQueue();
        client.beRefused();
        client.recover();
        client.connection.close();
        step("closed");
    }

    void declare() throws Exception {
        channel.exchangeDeclare("unrouted", "fanout", true);
        channel.exchangeDeclare("dead", "fanout", true);
        channel.exchangeDeclare("events", "topic", true, false, Map.of("alternate-exchange", "unrouted"));
        channel.queueDeclare("dead", true, false, false, null);
        channel.queueBind("dead", "dead", "");
        Map<String, Object> limits =
            Map.of("x-max-length", 1000, "x-message-ttl", 3600_000, "x-dead-letter-exchange", "dead");
        for (int again = 0; again < 2; again++) {
            AMQP.Queue.DeclareOk declared = channel.queueDeclare("orders", true, false, false, limits);
            equal("orders", declared.getQueue());
            equal(0, declared.getMessageCount());
        }
        channel.queueBind("orders", "events", "order.#", Map.of("note", "by java"));
        equal(0, channel.queueDeclarePassive("orders").getConsumerCount());
        step("declared");
    }

    void publish(String text) throws Exception {
        channel.basicPublish("events", "order.new", true, PERSISTENT, text.getBytes("UTF-8"));
        channel.waitForConfirmsOrDie(PATIENCE_S * 1000);
    }

    void confirm() throws Exception {
        channel.confirmSelect();
        Map<String, Object> headers = new HashMap<>();
        headers.put("text", "Grüße");
        headers.put("long", 1L << 40);
        headers.put("int", -7);
        headers.put("double", 0.25);
        headers.put("yes", true);
        headers.put("nothing", null);
        headers.put("bytes", new byte[] {0, 1, (byte) 0xCE});
        headers.put("time", new Date(1_700_000_000_000L));
        headers.put("list", List.of(1, "two"));
        headers.put("table", Map.of("inner", 3));
        AMQP.BasicProperties sent = new AMQP.BasicProperties.Builder()
            .contentType("text/plain").contentEncoding("utf-8").headers(headers).deliveryMode(2).priority(3)
            .correlationId("c-1").replyTo("answers").expiration("3600000").messageId("m-1")
            .timestamp(new Date(1_700_000_000_000L)).type("order").userId("guest").appId("shop").build();
        channel.basicPublish("events", "order.new", true, sent, "with properties".getBytes("UTF-8"));
        channel.waitForConfirmsOrDie(PATIENCE_S * 1000);

        GetResponse got = channel.basicGet("orders", true);
        equal("with properties", text(got.getBody()));
        equal("events order.new", got.getEnvelope().getExchange() + " " + got.getEnvelope().getRoutingKey());
        equal(describe(headers), describe(got.getProps().getHeaders()));
        AMQP.BasicProperties bare = got.getProps().builder().headers(null).build();
        equal(sent.builder().headers(null).build().toString(), bare.toString());
        step("confirmed");
    }

    void takeBack() throws Exception {
        BlockingQueue<String> returned = new LinkedBlockingQueue<>();
        ReturnListener listener = (code, reason, exchange, key, properties, body) ->
            returned.add(code + " " + reason + " " + exchange + " " + key + " " + text(body));
        channel.addReturnListener(listener);
        channel.basicPublish("events", "nobody", true, PERSISTENT, "lost".getBytes("UTF-8"));
        equal("312 NO_ROUTE events nobody lost", take(returned));
        channel.waitForConfirmsOrDie(PATIENCE_S * 1000);
        channel.removeReturnListener(listener);
        step("returned");
    }

    void carryMuch() throws Exception {
        byte[] body = new byte[3 << 20];
        new Random(1).nextBytes(body);
        channel.basicPublish("events", "order.large", true, PERSISTENT, body);
        channel.waitForConfirmsOrDie(PATIENCE_S * 1000);
        GetResponse got = channel.basicGet("orders", false);
        check(Arrays.equals(body, got.getBody()), "3 MiB came back changed");
        channel.basicAck(got.getEnvelope().getDeliveryTag(), false);
        step("carried 3 MiB");
    }

    BlockingQueue<Delivery> consumeFrom(Channel channel, String queue, String tag) throws Exception {
        BlockingQueue<Delivery> deliveries = new LinkedBlockingQueue<>();
        channel.basicConsume(queue, false, tag, new DefaultConsumer(channel) {
            @Override
            public void handleDelivery(String tag, Envelope envelope, AMQP.BasicProperties properties, byte[] body) {
                deliveries.add(new Delivery(envelope, properties, body));
            }
        });
        return deliveries;
    }

    void consume() throws Exception {
        for (int number = 0; number < 5; number++) {
            publish("order " + number);
        }
        Channel consuming = connection.createChannel();
        consuming.basicQos(2);
        BlockingQueue<Delivery> deliveries = consumeFrom(consuming, "orders", "worker");
        for (int number = 0; number < 5; number += 2) {
            Delivery last = take(deliveries);
            equal("order " + number, text(last.body));
            if (number + 1 < 5) {
                last = take(deliveries);
                equal("order " + (number + 1), text(last.body));
            }
            check(deliveries.poll(200, TimeUnit.MILLISECONDS) == null, "more came than the prefetch allows");
            consuming.basicAck(last.envelope.getDeliveryTag(), true);
        }
        consuming.basicCancel("worker");
        consuming.close();
        equal(0, channel.queueDeclarePassive("orders").getMessageCount());
        step("consumed with prefetch");
    }

    void requeue() throws Exception {
        publish("again");
        GetResponse got = channel.basicGet("orders", false);
        check(!got.getEnvelope().isRedeliver(), "redelivered at first");
        channel.basicNack(got.getEnvelope().getDeliveryTag(), false, true);
        got = channel.basicGet("orders", false);
        equal("again", text(got.getBody()));
        check(got.getEnvelope().isRedeliver(), "not marked as redelivered");
        channel.basicReject(got.getEnvelope().getDeliveryTag(), true);
        step("requeued");
    }

    void deadLetter() throws Exception {
        GetResponse got = channel.basicGet("orders", false);
        channel.basicNack(got.getEnvelope().getDeliveryTag(), false, false);
        GetResponse dead = take(() -> channel.basicGet("dead", true));
        equal("again", text(dead.getBody()));
        Map<?, ?> death = (Map<?, ?>) ((List<?>) dead.getProps().getHeaders().get("x-death")).get(0);
        equal("orders rejected events [order.new] 1", death.get("queue") + " " + death.get("reason") + " "
            + death.get("exchange") + " " + death.get("routing-keys") + " " + death.get("count"));
        equal("orders", dead.getProps().getHeaders().get("x-first-death-queue").toString());
        step("dead-lettered");
    }

    void get() throws Exception {
        publish("first");
        publish("second");
        GetResponse got = channel.basicGet("orders", true);
        equal("first 1", text(got.getBody()) + " " + got.getMessageCount());
        equal("second", text(channel.basicGet("orders", true).getBody()));
        check(channel.basicGet("orders", true) == null, "a message in an empty queue");
        step("got");
    }

    void callDirectly() throws Exception {
        channel.queueDeclare("service", false, true, false, null);
        Channel serving = connection.createChannel();
        serving.basicConsume("service", true, new DefaultConsumer(serving) {
            @Override
            public void handleDelivery(String tag, Envelope envelope, AMQP.BasicProperties request, byte[] body)
                throws IOException {
                AMQP.BasicProperties reply =
                    new AMQP.BasicProperties.Builder().correlationId(request.getCorrelationId()).build();
                serving.basicPublish("", request.getReplyTo(), reply, ("re: " + text(body)).getBytes("UTF-8"));
            }
        });
        Channel calling = connection.createChannel();
        RpcClient client = new RpcClient(calling, "", "service", PATIENCE_S * 1000);
        equal("re: question", client.stringCall("question"));
        equal("re: another", client.stringCall("another"));
        client.close();
        calling.close();
        serving.close();
        channel.queueDelete("service");
        step("replied directly");
    }

    void transact() throws Exception {
        Channel transacting = connection.createChannel();
        transacting.txSelect();
        transacting.basicPublish("events", "order.tx", PERSISTENT, "regretted".getBytes("UTF-8"));
        transacting.txRollback();
        transacting.basicPublish("events", "order.tx", PERSISTENT, "meant".getBytes("UTF-8"));
        equal(0, channel.queueDeclarePassive("orders").getMessageCount());
        transacting.txCommit();
        equal(1, channel.queueDeclarePassive("orders").getMessageCount());
        GetResponse got = transacting.basicGet("orders", false);
        equal("meant", text(got.getBody()));
        transacting.basicAck(got.getEnvelope().getDeliveryTag(), false);
        transacting.txCommit();
        transacting.close();
        equal(0, channel.queueDeclarePassive("orders").getMessageCount());
        step("committed and rolled back");
    }

    void loseQueue() throws Exception {
        channel.queueDeclare("temporary", true, false, false, null);
        Channel consuming = connection.createChannel();
        BlockingQueue<String> cancelled = new LinkedBlockingQueue<>();
        consuming.basicConsume("temporary", false, "watcher", new DefaultConsumer(consuming) {
            @Override
            public void handleCancel(String tag) {
                cancelled.add(tag);
            }
        });
        channel.queueDelete("temporary");
        equal("watcher", take(cancelled));
        check(consuming.isOpen(), "the channel went with the queue");
        consuming.close();
        step("told of the deleted queue");
    }

    void beRefused() throws Exception {
        refused(other -> other.queueDeclarePassive("missing"));
        Map<String, Object> limits =
            Map.of("x-max-length", 5, "x-message-ttl", 3600_000, "x-dead-letter-exchange", "dead");
        refused(other -> other.queueDeclare("orders", true, false, false, limits));
    }

    interface Act {
        void on(Channel channel) throws IOException;
    }

    void refused(Act act) throws Exception {
        Channel other = connection.createChannel();
        try {
            act.on(other);
        } catch (IOException refusal) {
            AMQP.Channel.Close close =
                (AMQP.Channel.Close) ((ShutdownSignalException) refusal.getCause()).getReason();
            step(close.getReplyCode() + " " + close.getReplyText());
            return;
        }
        throw new AssertionError("not refused");
    }

    /** The client declares its queue, binding and consumer anew; what is durable is the broker's matter. */
    void recover() throws Exception {
        Channel consuming = connection.createChannel();
        String own = consuming.queueDeclare().getQueue();
        consuming.queueBind(own, "events", "news.#");
        BlockingQueue<Delivery> news = consumeFrom(consuming, own, "reader");
        BlockingQueue<Delivery> orders = consumeFrom(consuming, "orders", "worker");
        publish("kept");
        equal("kept", text(take(orders).body));
        CountDownLatch recovered = new CountDownLatch(1);
        BlockingQueue<ShutdownSignalException> ends = new LinkedBlockingQueue<>();
        connection.addShutdownListener(ends::add);
        ((Recoverable) connection).addRecoveryListener(new RecoveryListener() {
            @Override
            public void handleRecovery(Recoverable recoverable) {
                recovered.countDown();
            }

            @Override
            public void handleRecoveryStarted(Recoverable recoverable) {
            }
        });

        step("restart the broker");
        System.in.read();
        AMQP.Connection.Close close = (AMQP.Connection.Close) take(ends).getReason();
        equal(320, close.getReplyCode());
        check(recovered.await(PATIENCE_S, TimeUnit.SECONDS), "no recovery");
        Delivery again = take(orders);
        equal("kept true", text(again.body) + " " + again.envelope.isRedeliver());
        consuming.basicAck(again.envelope.getDeliveryTag(), false);
        channel.basicPublish("events", "news.today", true, PERSISTENT, "read".getBytes("UTF-8"));
        channel.waitForConfirmsOrDie(PATIENCE_S * 1000);
        equal("read", text(take(news).body));
        consuming.close();
        equal(0, channel.queueDeclarePassive("orders").getMessageCount());
        step("recovered");
    }

    static class Delivery {
        final Envelope envelope;
        final AMQP.BasicProperties properties;
        final byte[] body;

        Delivery(Envelope envelope, AMQP.BasicProperties properties, byte[] body) {
            this.envelope = envelope;
            this.properties = properties;
            this.body = body;
        }
    }

    static <T> T take(BlockingQueue<T> from) throws Exception {
        T taken = from.poll(PATIENCE_S, TimeUnit.SECONDS);
        check(taken != null, "nothing came");
        return taken;
    }

    static <T> T take(Callable<T> from) throws Exception {
        for (int tries = 0; tries < PATIENCE_S * 20; tries++) {
            T taken = from.call();
            if (taken != null) {
                return taken;
            }
            Thread.sleep(50);
        }
        throw new AssertionError("nothing came");
    }

    static String text(byte[] body) {
        return new String(body, java.nio.charset.StandardCharsets.UTF_8);
    }

    /** The same text for equal header tables, also of byte arrays. */
    static String describe(Object value) {
        if (value instanceof Map) {
            Map<String, String> sorted = new TreeMap<>();
            ((Map<?, ?>) value).forEach((key, inner) -> sorted.put(key.toString(), describe(inner)));
            return sorted.toString();
        }
        if (value instanceof byte[]) {
            return Arrays.toString((byte[]) value);
        }
        return String.valueOf(value);
    }

    static void equal(Object expected, Object actual) {
        check(expected.equals(actual), actual + " instead of " + expected);
    }

    static void check(boolean right, String otherwise) {
        if (!right) {
            throw new AssertionError(otherwise);
        }
    }

    static void step(String passed) {
        System.out.println(passed);
    }
}
