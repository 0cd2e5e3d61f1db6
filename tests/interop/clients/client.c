/* What an application in C does with a broker, in steps; each prints a line. Arguments: host, port. */

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <amqp.h>
#include <amqp_tcp_socket.h>

#define MAIN 1 /* the channel that most steps use, with confirms from the step on that is about them */
#define SECOND 2
#define THIRD 3
#define SIZE_OF(array) ((int)(sizeof(array) / sizeof((array)[0])))

static const int FRAME_MAX = 131072;
static const int HEARTBEAT_S = 20;
static const struct timeval PATIENCE = {60, 0};
static amqp_connection_state_t connection;

struct got {
  bool there;
  bool redelivered;
  uint64_t tag;
  uint32_t left;
  amqp_message_t message;
};

static void step(const char *passed) { printf("%s\n", passed); }

static void check(bool right, const char *otherwise, ...) {
  if (right) return;
  va_list values;
  va_start(values, otherwise);
  vfprintf(stderr, otherwise, values);
  va_end(values);
  fputc('\n', stderr);
  exit(1);
}

static void equal(const char *expected, amqp_bytes_t actual) {
  bool same = actual.len == strlen(expected) && memcmp(actual.bytes, expected, actual.len) == 0;
  check(same, "%.*s instead of %s", (int)actual.len, (char *)actual.bytes, expected);
}

static void counted(uint64_t expected, uint64_t actual) {
  check(expected == actual, "%llu instead of %llu", (unsigned long long)actual, (unsigned long long)expected);
}

static void done(int status) { check(status == AMQP_STATUS_OK, "%s", amqp_error_string2(status)); }

/* What the broker said to the last request must be no error. */
static amqp_rpc_reply_t answered(amqp_rpc_reply_t reply) {
  if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION) done(reply.library_error);
  if (reply.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION && reply.reply.id == AMQP_CHANNEL_CLOSE_METHOD) {
    amqp_channel_close_t *close = reply.reply.decoded;
    check(false, "%d %.*s", close->reply_code, (int)close->reply_text.len, (char *)close->reply_text.bytes);
  }
  check(reply.reply_type == AMQP_RESPONSE_NORMAL, "the connection has ended");
  return reply;
}

static void succeeded(void) { answered(amqp_get_rpc_reply(connection)); }

static amqp_bytes_t text(const char *characters) { return amqp_cstring_bytes(characters); }

static amqp_table_entry_t entry(const char *key, uint8_t kind) {
  amqp_table_entry_t made = {.key = text(key), .value = {.kind = kind}};
  return made;
}

static amqp_table_entry_t text_entry(const char *key, const char *value) {
  amqp_table_entry_t made = entry(key, AMQP_FIELD_KIND_UTF8);
  made.value.value.bytes = text(value);
  return made;
}

static amqp_table_entry_t int_entry(const char *key, int32_t value) {
  amqp_table_entry_t made = entry(key, AMQP_FIELD_KIND_I32);
  made.value.value.i32 = value;
  return made;
}

static void open_channel(amqp_channel_t channel) {
  amqp_channel_open(connection, channel);
  succeeded();
}

static void close_channel(amqp_channel_t channel) {
  answered(amqp_channel_close(connection, channel, AMQP_REPLY_SUCCESS));
  amqp_maybe_release_buffers(connection);
}

static void connect_to(const char *host, int port) {
  connection = amqp_new_connection();
  done(amqp_socket_open(amqp_tcp_socket_new(connection), host, port));
  amqp_table_entry_t capability = entry("consumer_cancel_notify", AMQP_FIELD_KIND_BOOLEAN);
  capability.value.value.boolean = 1; /* the client does not say so by itself */
  amqp_table_entry_t capabilities = entry("capabilities", AMQP_FIELD_KIND_TABLE);
  capabilities.value.value.table = (amqp_table_t){1, &capability};
  amqp_table_t properties = {1, &capabilities};
  answered(amqp_login_with_properties(connection, "/", AMQP_DEFAULT_MAX_CHANNELS, FRAME_MAX, HEARTBEAT_S, &properties,
                                      AMQP_SASL_METHOD_PLAIN, "guest", "guest"));
  open_channel(MAIN);
}

static amqp_queue_declare_ok_t *declare_orders(amqp_channel_t channel, int32_t length) {
  amqp_table_entry_t limits[] = {int_entry("x-max-length", length), int_entry("x-message-ttl", 3600000),
                                 text_entry("x-dead-letter-exchange", "dead")};
  amqp_table_t arguments = {SIZE_OF(limits), limits};
  return amqp_queue_declare(connection, channel, text("orders"), 0, 1, 0, 0, arguments);
}

static void declare_exchange(const char *name, const char *type, amqp_table_t arguments) {
  amqp_exchange_declare(connection, MAIN, text(name), text(type), 0, 1, 0, 0, arguments);
  succeeded();
}

static void declare_queue(const char *name, bool durable) {
  amqp_queue_declare(connection, MAIN, text(name), 0, durable, !durable, 0, amqp_empty_table);
  succeeded();
}

static void delete_queue(const char *name) {
  amqp_queue_delete(connection, MAIN, text(name), 0, 0);
  succeeded();
}

static void bind_queue(const char *queue, const char *exchange, const char *key, amqp_table_t arguments) {
  amqp_queue_bind(connection, MAIN, text(queue), text(exchange), text(key), arguments);
  succeeded();
}

static void declare(void) {
  amqp_table_entry_t alternate = text_entry("alternate-exchange", "unrouted");
  amqp_table_entry_t note = text_entry("note", "by c");
  declare_exchange("unrouted", "fanout", amqp_empty_table);
  declare_exchange("dead", "fanout", amqp_empty_table);
  declare_exchange("events", "topic", (amqp_table_t){1, &alternate});
  declare_queue("dead", true);
  bind_queue("dead", "dead", "", amqp_empty_table);
  for (int again = 0; again < 2; again++) {
    amqp_queue_declare_ok_t *declared = declare_orders(MAIN, 1000);
    succeeded();
    equal("orders", declared->queue);
    counted(0, declared->message_count);
    counted(0, declared->consumer_count);
  }
  bind_queue("orders", "events", "order.#", (amqp_table_t){1, &note});
  step("declared");
}

static amqp_basic_properties_t persistent(void) {
  amqp_basic_properties_t properties = {._flags = AMQP_BASIC_DELIVERY_MODE_FLAG, .delivery_mode = 2};
  return properties;
}

static void send_on(amqp_channel_t channel, const char *exchange, const char *key, amqp_basic_properties_t properties,
                    amqp_bytes_t body) {
  done(amqp_basic_publish(connection, channel, text(exchange), text(key), 0, 0, &properties, body));
}

static amqp_method_t wait_for(amqp_channel_t channel, amqp_method_number_t id) {
  amqp_frame_t frame;
  done(amqp_simple_wait_frame_noblock(connection, &frame, &PATIENCE));
  check(frame.channel == channel && frame.frame_type == AMQP_FRAME_METHOD && frame.payload.method.id == id,
        "frame %d of channel %d with %s", frame.frame_type, frame.channel,
        frame.frame_type == AMQP_FRAME_METHOD ? amqp_method_name(frame.payload.method.id) : "content");
  return frame.payload.method;
}

static void send_confirmed(const char *key, amqp_basic_properties_t properties, amqp_bytes_t body) {
  send_on(MAIN, "events", key, properties, body);
  wait_for(MAIN, AMQP_BASIC_ACK_METHOD);
}

static void publish(const char *body) { send_confirmed("order.new", persistent(), text(body)); }

static struct got pop_on(amqp_channel_t channel, const char *queue, bool no_ack) {
  amqp_maybe_release_buffers_on_channel(connection, channel);
  amqp_rpc_reply_t reply = answered(amqp_basic_get(connection, channel, text(queue), no_ack));
  struct got got = {.there = reply.reply.id == AMQP_BASIC_GET_OK_METHOD};
  if (got.there) {
    amqp_basic_get_ok_t *ok = reply.reply.decoded;
    got.tag = ok->delivery_tag;
    got.redelivered = ok->redelivered;
    got.left = ok->message_count;
    answered(amqp_read_message(connection, channel, &got.message, 0));
  }
  return got;
}

static struct got pop(const char *queue, bool no_ack) {
  struct timespec while_waiting = {0, 50 * 1000 * 1000};
  for (int tries = 0; tries < PATIENCE.tv_sec * 20; tries++) {
    struct got got = pop_on(MAIN, queue, no_ack);
    if (got.there) return got;
    nanosleep(&while_waiting, NULL);
  }
  check(false, "nothing came");
  exit(1);
}

static uint32_t count(const char *queue) {
  amqp_queue_declare_ok_t *passive =
      amqp_queue_declare(connection, MAIN, text(queue), 1, 0, 0, 0, amqp_empty_table);
  succeeded();
  return passive->message_count;
}

/* A table as the client writes it, to compare tables by. */
static amqp_bytes_t written(amqp_table_t table) {
  amqp_bytes_t bytes = amqp_bytes_malloc(4096);
  size_t length = 0;
  done(amqp_encode_table(bytes, &table, &length));
  bytes.len = length;
  return bytes;
}

static void confirm(void) {
  amqp_confirm_select(connection, MAIN);
  succeeded();
  amqp_field_value_t items[] = {int_entry("", 1).value, text_entry("", "two").value};
  amqp_table_entry_t inner = int_entry("inner", 3);
  amqp_table_entry_t headers[] = {
      text_entry("text", "Grüße"),
      int_entry("int", -7),
      entry("long", AMQP_FIELD_KIND_I64),
      entry("double", AMQP_FIELD_KIND_F64),
      entry("yes", AMQP_FIELD_KIND_BOOLEAN),
      entry("nothing", AMQP_FIELD_KIND_VOID),
      entry("bytes", AMQP_FIELD_KIND_BYTES),
      entry("time", AMQP_FIELD_KIND_TIMESTAMP),
      entry("decimal", AMQP_FIELD_KIND_DECIMAL),
      entry("list", AMQP_FIELD_KIND_ARRAY),
      entry("table", AMQP_FIELD_KIND_TABLE),
  };
  headers[2].value.value.i64 = 1LL << 40;
  headers[3].value.value.f64 = 0.25;
  headers[4].value.value.boolean = 1;
  headers[6].value.value.bytes = (amqp_bytes_t){3, "\x00\x01\xCE"};
  headers[7].value.value.u64 = 1700000000;
  headers[8].value.value.decimal = (amqp_decimal_t){.decimals = 2, .value = 12345};
  headers[9].value.value.array = (amqp_array_t){SIZE_OF(items), items};
  headers[10].value.value.table = (amqp_table_t){1, &inner};
  amqp_basic_properties_t sent = persistent();
  sent._flags |= AMQP_BASIC_HEADERS_FLAG | AMQP_BASIC_CONTENT_TYPE_FLAG | AMQP_BASIC_PRIORITY_FLAG |
                 AMQP_BASIC_CORRELATION_ID_FLAG | AMQP_BASIC_TIMESTAMP_FLAG | AMQP_BASIC_USER_ID_FLAG;
  sent.headers = (amqp_table_t){SIZE_OF(headers), headers};
  sent.content_type = text("text/plain");
  sent.priority = 3;
  sent.correlation_id = text("c-1");
  sent.timestamp = 1700000000;
  sent.user_id = text("guest");
  send_confirmed("order.new", sent, text("with properties"));

  struct got got = pop("orders", true);
  equal("with properties", got.message.body);
  amqp_basic_properties_t *received = &got.message.properties;
  counted(sent._flags, received->_flags);
  counted(2, received->delivery_mode);
  counted(3, received->priority);
  counted(1700000000, received->timestamp);
  equal("text/plain", received->content_type);
  equal("c-1", received->correlation_id);
  equal("guest", received->user_id);
  amqp_bytes_t before = written(sent.headers), after = written(received->headers);
  check(before.len == after.len && memcmp(before.bytes, after.bytes, before.len) == 0, "headers came back changed");
  amqp_bytes_free(before);
  amqp_bytes_free(after);
  amqp_destroy_message(&got.message);
  step("confirmed");
}

static void take_back(void) {
  amqp_basic_properties_t properties = persistent();
  done(amqp_basic_publish(connection, MAIN, text("events"), text("nobody"), 1, 0, &properties, text("lost")));
  amqp_basic_return_t *returned = wait_for(MAIN, AMQP_BASIC_RETURN_METHOD).decoded;
  counted(312, returned->reply_code);
  equal("NO_ROUTE", returned->reply_text);
  equal("events", returned->exchange);
  equal("nobody", returned->routing_key);
  amqp_message_t message;
  answered(amqp_read_message(connection, MAIN, &message, 0));
  equal("lost", message.body);
  amqp_destroy_message(&message);
  wait_for(MAIN, AMQP_BASIC_ACK_METHOD);
  step("returned");
}

static void carry_much(void) {
  amqp_bytes_t body = amqp_bytes_malloc(3 << 20);
  for (size_t at = 0; at < body.len; at++) ((char *)body.bytes)[at] = (char)(rand() >> 8);
  send_confirmed("order.large", persistent(), body);
  struct got got = pop("orders", false);
  check(got.message.body.len == body.len && memcmp(got.message.body.bytes, body.bytes, body.len) == 0,
        "3 MiB came back changed");
  done(amqp_basic_ack(connection, MAIN, got.tag, 0));
  amqp_destroy_message(&got.message);
  amqp_bytes_free(body);
  step("carried 3 MiB");
}

static void consume_from(amqp_channel_t channel, const char *queue, const char *tag, bool no_ack) {
  amqp_basic_consume(connection, channel, text(queue), text(tag), 0, no_ack, 0, amqp_empty_table);
  succeeded();
}

static void stop_consuming(amqp_channel_t channel, const char *tag) {
  amqp_basic_cancel(connection, channel, text(tag));
  succeeded();
}

static amqp_envelope_t take(void) {
  amqp_envelope_t envelope;
  amqp_maybe_release_buffers(connection);
  answered(amqp_consume_message(connection, &envelope, &PATIENCE, 0));
  return envelope;
}

static void consume(void) {
  const int last_of_turn[] = {1, 3, 4};
  char body[32];
  int number = 0;
  for (int sent = 0; sent < 5; sent++) {
    snprintf(body, sizeof body, "order %d", sent);
    publish(body);
  }
  open_channel(SECOND);
  amqp_basic_qos(connection, SECOND, 0, 2, 0);
  succeeded();
  consume_from(SECOND, "orders", "worker", false);
  for (int turn = 0; turn < SIZE_OF(last_of_turn); turn++) {
    uint64_t tag = 0;
    for (; number <= last_of_turn[turn]; number++) {
      amqp_envelope_t envelope = take();
      snprintf(body, sizeof body, "order %d", number);
      equal(body, envelope.message.body);
      tag = envelope.delivery_tag;
      amqp_destroy_envelope(&envelope);
    }
    amqp_envelope_t more;
    struct timeval shortly = {0, 200 * 1000};
    amqp_rpc_reply_t reply = amqp_consume_message(connection, &more, &shortly, 0);
    check(reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION && reply.library_error == AMQP_STATUS_TIMEOUT,
          "more came than the prefetch allows");
    done(amqp_basic_ack(connection, SECOND, tag, 1));
  }
  stop_consuming(SECOND, "worker");
  close_channel(SECOND);
  counted(0, count("orders"));
  step("consumed with prefetch");
}

static void requeue(void) {
  publish("again");
  struct got got = pop("orders", false);
  check(!got.redelivered, "redelivered at first");
  done(amqp_basic_nack(connection, MAIN, got.tag, 0, 1));
  amqp_destroy_message(&got.message);
  got = pop("orders", false);
  equal("again", got.message.body);
  check(got.redelivered, "not marked as redelivered");
  done(amqp_basic_reject(connection, MAIN, got.tag, 1));
  amqp_destroy_message(&got.message);
  step("requeued");
}

static amqp_field_value_t field(amqp_table_t table, const char *key) {
  for (int at = 0; at < table.num_entries; at++) {
    amqp_bytes_t name = table.entries[at].key;
    if (name.len == strlen(key) && memcmp(name.bytes, key, name.len) == 0) return table.entries[at].value;
  }
  check(false, "no field %s", key);
  exit(1);
}

static void dead_letter(void) {
  struct got got = pop("orders", false);
  done(amqp_basic_nack(connection, MAIN, got.tag, 0, 0));
  amqp_destroy_message(&got.message);
  struct got dead = pop("dead", true);
  equal("again", dead.message.body);
  amqp_table_t headers = dead.message.properties.headers;
  amqp_field_value_t deaths = field(headers, "x-death");
  check(deaths.kind == AMQP_FIELD_KIND_ARRAY && deaths.value.array.num_entries == 1, "not one death");
  amqp_table_t death = deaths.value.array.entries[0].value.table;
  equal("orders", field(death, "queue").value.bytes);
  equal("rejected", field(death, "reason").value.bytes);
  equal("events", field(death, "exchange").value.bytes);
  equal("order.new", field(death, "routing-keys").value.array.entries[0].value.bytes);
  counted(1, (uint64_t)field(death, "count").value.i64);
  equal("orders", field(headers, "x-first-death-queue").value.bytes);
  amqp_destroy_message(&dead.message);
  step("dead-lettered");
}

static void get(void) {
  publish("first");
  publish("second");
  struct got got = pop("orders", true);
  equal("first", got.message.body);
  counted(1, got.left);
  amqp_destroy_message(&got.message);
  got = pop("orders", true);
  equal("second", got.message.body);
  amqp_destroy_message(&got.message);
  check(!pop_on(MAIN, "orders", true).there, "a message in an empty queue");
  step("got");
}

static void call_directly(void) {
  const char *questions[] = {"question", "another"};
  const char *replies[] = {"re: question", "re: another"};
  open_channel(SECOND);
  open_channel(THIRD);
  declare_queue("service", false);
  consume_from(SECOND, "service", "server", true);
  consume_from(THIRD, "amq.rabbitmq.reply-to", "caller", true);
  for (int call = 0; call < SIZE_OF(questions); call++) {
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_CORRELATION_ID_FLAG | AMQP_BASIC_REPLY_TO_FLAG,
                                          .correlation_id = text(questions[call]),
                                          .reply_to = text("amq.rabbitmq.reply-to")};
    send_on(THIRD, "", "service", properties, text(questions[call]));

    amqp_envelope_t request = take();
    counted(SECOND, request.channel);
    equal(questions[call], request.message.body);
    amqp_basic_properties_t answer = {._flags = AMQP_BASIC_CORRELATION_ID_FLAG,
                                      .correlation_id = request.message.properties.correlation_id};
    done(amqp_basic_publish(connection, SECOND, amqp_empty_bytes, request.message.properties.reply_to, 0, 0, &answer,
                            text(replies[call])));
    amqp_destroy_envelope(&request);

    amqp_envelope_t reply = take();
    counted(THIRD, reply.channel);
    equal(replies[call], reply.message.body);
    equal(questions[call], reply.message.properties.correlation_id);
    amqp_destroy_envelope(&reply);
  }
  close_channel(THIRD);
  close_channel(SECOND);
  delete_queue("service");
  step("replied directly");
}

static void commit(amqp_channel_t channel) {
  amqp_tx_commit(connection, channel);
  succeeded();
}

static void transact(void) {
  open_channel(SECOND);
  amqp_tx_select(connection, SECOND);
  succeeded();
  send_on(SECOND, "events", "order.tx", persistent(), text("regretted"));
  amqp_tx_rollback(connection, SECOND);
  succeeded();
  send_on(SECOND, "events", "order.tx", persistent(), text("meant"));
  counted(0, count("orders"));
  commit(SECOND);
  counted(1, count("orders"));
  struct got got = pop_on(SECOND, "orders", false);
  check(got.there, "what was committed is not there");
  equal("meant", got.message.body);
  done(amqp_basic_ack(connection, SECOND, got.tag, 0));
  amqp_destroy_message(&got.message);
  commit(SECOND);
  close_channel(SECOND);
  counted(0, count("orders"));
  step("committed and rolled back");
}

static void lose_queue(void) {
  declare_queue("temporary", true);
  open_channel(SECOND);
  consume_from(SECOND, "temporary", "watcher", false);
  delete_queue("temporary");
  amqp_basic_cancel_t *cancel = wait_for(SECOND, AMQP_BASIC_CANCEL_METHOD).decoded;
  equal("watcher", cancel->consumer_tag);
  close_channel(SECOND);
  step("told of the deleted queue");
}

/* The last request on a channel must have ended it; says why. */
static void refused(amqp_channel_t channel) {
  amqp_rpc_reply_t reply = amqp_get_rpc_reply(connection);
  check(reply.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION && reply.reply.id == AMQP_CHANNEL_CLOSE_METHOD,
        "not refused");
  amqp_channel_close_t *close = reply.reply.decoded;
  printf("%d %.*s\n", close->reply_code, (int)close->reply_text.len, (char *)close->reply_text.bytes);
  amqp_channel_close_ok_t ok = {0};
  done(amqp_send_method(connection, channel, AMQP_CHANNEL_CLOSE_OK_METHOD, &ok));
}

static void be_refused(void) {
  open_channel(SECOND);
  amqp_queue_declare(connection, SECOND, text("missing"), 1, 0, 0, 0, amqp_empty_table);
  refused(SECOND);
  open_channel(SECOND);
  declare_orders(SECOND, 5);
  refused(SECOND);
}

static void take_order(const char *body, bool redelivered) {
  amqp_envelope_t envelope = take();
  equal(body, envelope.message.body);
  check(redelivered == (bool)envelope.redelivered, "%s: wrongly marked as redelivered or not", body);
  done(amqp_basic_ack(connection, MAIN, envelope.delivery_tag, 0));
  amqp_destroy_envelope(&envelope);
}

/* This client leaves it to the application to connect anew. */
static void recover(const char *host, int port) {
  publish("kept");
  struct got got = pop("orders", false);
  equal("kept", got.message.body);
  amqp_destroy_message(&got.message);

  step("restart the broker");
  amqp_connection_close_t *close = wait_for(0, AMQP_CONNECTION_CLOSE_METHOD).decoded;
  counted(320, close->reply_code);
  amqp_connection_close_ok_t ok = {0};
  done(amqp_send_method(connection, 0, AMQP_CONNECTION_CLOSE_OK_METHOD, &ok));
  done(amqp_destroy_connection(connection));
  check(getchar() != EOF, "nobody has restarted the broker");

  connect_to(host, port);
  consume_from(MAIN, "orders", "worker", false);
  take_order("kept", true);
  send_on(MAIN, "events", "order.new", persistent(), text("after it"));
  take_order("after it", false);
  stop_consuming(MAIN, "worker");
  counted(0, count("orders"));
  step("recovered");
}

int main(int count_of_arguments, char **arguments) {
  check(count_of_arguments == 3, "arguments: host, port");
  int port = atoi(arguments[2]);
  setvbuf(stdout, NULL, _IOLBF, 0);
  connect_to(arguments[1], port);
  step("connected");
  declare();
  confirm();
  take_back();
  carry_much();
  consume();
  requeue();
  dead_letter();
  get();
  call_directly();
  transact();
  lose_queue();
  be_refused();
  recover(arguments[1], port);
  answered(amqp_connection_close(connection, AMQP_REPLY_SUCCESS));
  done(amqp_destroy_connection(connection));
  step("closed");
  return 0;
}
