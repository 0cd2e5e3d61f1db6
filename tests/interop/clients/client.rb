# frozen_string_literal: true

# What an application in Ruby (Bunny) does with a broker, in steps; each prints a line. Arguments: host, port.

require "bunny"
require "logger"
require "timeout"

PATIENCE_S = 60
LIMITS = { "x-max-length" => 1000, "x-message-ttl" => 3_600_000, "x-dead-letter-exchange" => "dead" }.freeze
$stdout.sync = true

def check(right, otherwise)
  raise otherwise unless right
end

def equal(expected, actual)
  check(expected == actual, "#{actual.inspect} instead of #{expected.inspect}")
end

def take(queue)
  Timeout.timeout(PATIENCE_S, nil, "nothing came") { queue.pop }
end

def step(passed)
  puts(passed)
end

# One application with its connection.
class Client
  def initialize(host, port)
    @recoveries = Queue.new
    @connection = Bunny.new(
      host: host, port: port, heartbeat: 10, network_recovery_interval: 0.2, connection_name: "orders",
      logger: Logger.new($stderr, level: Logger::ERROR), recovery_completed: -> { @recoveries << true }
    ).start
    @channel = @connection.create_channel
    step("connected")
  end

  def declare
    @channel.fanout("unrouted", durable: true)
    dead = @channel.fanout("dead", durable: true)
    alternate = { "alternate-exchange" => "unrouted" }
    @events = @channel.topic("events", durable: true, arguments: alternate)
    @dead = @channel.queue("dead", durable: true).bind(dead)
    @orders = @channel.queue("orders", durable: true, arguments: LIMITS)
    @channel.queue_declare("orders", durable: true, arguments: LIMITS)
    @orders.bind(@events, routing_key: "order.#", arguments: { "note" => "by ruby" })
    equal([0, 0], @orders.status.values_at(:message_count, :consumer_count))
    step("declared")
  end

  def publish(text)
    @events.publish(text, routing_key: "order.new", persistent: true, mandatory: true)
    check(@channel.wait_for_confirms, "refused: #{text}")
  end

  def confirm
    @channel.confirm_select
    seconds = 1_700_000_000
    headers = {
      "text" => "Grüße".b, "long" => 1 << 40, "int" => -7, "double" => 0.25, "yes" => true, "nothing" => nil,
      "time" => Time.at(seconds), "list" => [1, "two"], "table" => { "inner" => 3 }
    }
    properties = {
      content_type: "text/plain", content_encoding: "utf-8", priority: 3, correlation_id: "c-1",
      reply_to: "answers", expiration: "3600000", message_id: "m-1", timestamp: seconds, type: "order",
      user_id: "guest", app_id: "shop"
    }
    options = properties.merge(headers: headers, routing_key: "order.new", persistent: true)
    @events.publish("with properties", options)
    check(@channel.wait_for_confirms, "refused")
    delivery, received, body = @orders.pop
    equal("with properties", body)
    equal(%w[events order.new], [delivery.exchange, delivery.routing_key])
    arrived = received.to_hash
    equal(properties.merge(headers: headers, delivery_mode: 2, timestamp: Time.at(seconds)), arrived)
    step("confirmed")
  end

  def take_back
    returned = Queue.new
    @events.on_return { |info, _, body| returned << [info.reply_code, info.reply_text, info.routing_key, body] }
    @events.publish("lost", routing_key: "nobody", mandatory: true, persistent: true)
    equal([312, "NO_ROUTE", "nobody", "lost"], take(returned))
    check(@channel.wait_for_confirms, "refused")
    step("returned")
  end

  def carry_much
    body = Random.new(1).bytes(3 << 20)
    @events.publish(body, routing_key: "order.large", persistent: true)
    check(@channel.wait_for_confirms, "refused")
    delivery, _, received = @orders.pop(manual_ack: true)
    check(body == received, "3 MiB came back changed")
    @channel.ack(delivery.delivery_tag)
    step("carried 3 MiB")
  end

  def consume
    5.times { |number| publish("order #{number}") }
    channel = @connection.create_channel
    channel.prefetch(2)
    deliveries = Queue.new
    consumer = channel.queue("orders", passive: true).subscribe(manual_ack: true) do |delivery, _, body|
      deliveries << [delivery, body]
    end
    [[0, 1], [2, 3], [4]].each do |numbers|
      last = numbers.map do |number|
        delivery, body = take(deliveries)
        equal("order #{number}", body)
        delivery.delivery_tag
      end.last
      sleep(0.2)
      check(deliveries.empty?, "more came than the prefetch allows")
      channel.ack(last, true)
    end
    consumer.cancel
    channel.close
    equal(0, @orders.message_count)
    step("consumed with prefetch")
  end

  def requeue
    publish("again")
    delivery, = @orders.pop(manual_ack: true)
    check(!delivery.redelivered?, "redelivered at first")
    @channel.nack(delivery.delivery_tag, false, true)
    delivery, _, body = @orders.pop(manual_ack: true)
    equal(["again", true], [body, delivery.redelivered?])
    @channel.reject(delivery.delivery_tag, true)
    step("requeued")
  end

  def dead_letter
    delivery, = @orders.pop(manual_ack: true)
    @channel.nack(delivery.delivery_tag, false, false)
    _, properties, body = Timeout.timeout(PATIENCE_S) do
      loop do
        got = @dead.pop
        break got if got.first

        sleep(0.05)
      end
    end
    equal("again", body)
    death = properties.headers["x-death"].first
    equal(["orders", "rejected", "events", ["order.new"], 1],
          death.values_at("queue", "reason", "exchange", "routing-keys", "count"))
    equal("orders", properties.headers["x-first-death-queue"])
    step("dead-lettered")
  end

  def get
    publish("first")
    publish("second")
    equal(["first", 1], [@orders.pop.last, @orders.message_count])
    equal("second", @orders.pop.last)
    equal([nil, nil, nil], @orders.pop)
    step("got")
  end

  def call_directly
    serving = @connection.create_channel
    serving.queue("service", exclusive: true).subscribe do |_, request, body|
      options = { routing_key: request.reply_to, correlation_id: request.correlation_id }
      serving.default_exchange.publish("re: #{body}", options)
    end
    calling = @connection.create_channel
    replies = Queue.new
    calling.basic_consume("amq.rabbitmq.reply-to", "caller", true) do |_, properties, body|
      replies << [properties.correlation_id, body]
    end
    %w[question another].each do |question|
      options = { routing_key: "service", correlation_id: "id of #{question}", reply_to: "amq.rabbitmq.reply-to" }
      calling.default_exchange.publish(question, options)
      equal(["id of #{question}", "re: #{question}"], take(replies))
    end
    calling.close
    serving.close
    @channel.queue_delete("service")
    step("replied directly")
  end

  def transact
    channel = @connection.create_channel
    channel.tx_select
    channel.basic_publish("regretted", "events", "order.tx", persistent: true)
    channel.tx_rollback
    channel.basic_publish("meant", "events", "order.tx", persistent: true)
    equal(0, @orders.message_count)
    channel.tx_commit
    equal(1, @orders.message_count)
    delivery, _, body = channel.basic_get("orders", manual_ack: true)
    equal("meant", body)
    channel.ack(delivery.delivery_tag)
    channel.tx_commit
    channel.close
    equal(0, @orders.message_count)
    step("committed and rolled back")
  end

  def lose_queue
    @channel.queue_declare("temporary", durable: true)
    channel = @connection.create_channel
    cancelled = Queue.new
    consumer = Bunny::Consumer.new(channel, channel.queue("temporary", passive: true), "watcher", false)
    consumer.on_cancellation { |cancel| cancelled << cancel.consumer_tag }
    channel.basic_consume_with(consumer)
    @channel.queue_delete("temporary")
    equal("watcher", take(cancelled))
    check(channel.open?, "the channel went with the queue")
    channel.close
    step("told of the deleted queue")
  end

  def be_refused
    refused(Bunny::NotFound) { |channel| channel.queue_declare("missing", passive: true) }
    other = LIMITS.merge("x-max-length" => 5)
    refused(Bunny::PreconditionFailed) { |channel| channel.queue_declare("orders", durable: true, arguments: other) }
  end

  def refused(kind)
    yield @connection.create_channel
    raise "not refused"
  rescue kind => e
    step("#{e.channel_close.reply_code} #{e.channel_close.reply_text}")
  end

  # Bunny declares its queue, binding and consumer anew; what is durable is the broker's matter.
  def recover
    channel = @connection.create_channel
    news = Queue.new
    own = channel.queue("", exclusive: true).bind(@events, routing_key: "news.#")
    own.subscribe { |_, _, body| news << body }
    orders = Queue.new
    channel.queue("orders", durable: true, arguments: LIMITS).subscribe(manual_ack: true) do |delivery, _, body|
      orders << [delivery, body]
    end
    publish("kept")
    equal("kept", take(orders).last)

    step("restart the broker")
    $stdin.gets
    take(@recoveries)
    delivery, body = take(orders)
    equal(["kept", true], [body, delivery.redelivered?])
    channel.ack(delivery.delivery_tag)
    @events.publish("read", routing_key: "news.today", persistent: true)
    check(@channel.wait_for_confirms, "refused")
    equal("read", take(news))
    channel.close
    equal(0, @orders.message_count)
    step("recovered")
  end

  def close
    @connection.close
    step("closed")
  end
end

client = Client.new(ARGV[0], ARGV[1].to_i)
%i[
  declare confirm take_back carry_much consume requeue dead_letter get call_directly transact lose_queue be_refused
  recover close
].each { |act| client.public_send(act) }
