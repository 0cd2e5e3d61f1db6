// What an application in Go does with a broker, in steps; each prints a line. Arguments: host, port.
package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand"
	"os"
	"reflect"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const patience = 60 * time.Second

var url string

func main() {
	url = fmt.Sprintf("amqp://guest:guest@%s:%s/", os.Args[1], os.Args[2])
	client := connect()
	step("connected")
	client.declare()
	client.confirm()
	client.takeBack()
	client.carryMuch()
	client.consume()
	client.requeue()
	client.deadLetter()
	client.get()
	client.callDirectly()
	client.transact()
	client.loseQueue()
	client.beRefused()
	client.recover()
	must(client.connection.Close())
	step("closed")
}

func step(passed string) {
	fmt.Println(passed)
}

func check(right bool, otherwise string, values ...any) {
	if !right {
		panic(fmt.Sprintf(otherwise, values...))
	}
}

func equal(expected, actual any) {
	check(reflect.DeepEqual(expected, actual), "%#v instead of %#v", actual, expected)
}

func must(err error) {
	check(err == nil, "%v", err)
}

func take[T any](from <-chan T) T {
	select {
	case taken, open := <-from:
		check(open, "the channel has ended")
		return taken
	case <-time.After(patience):
		panic("nothing came")
	}
}

type client struct {
	connection *amqp.Connection
	channel    *amqp.Channel
	confirms   <-chan amqp.Confirmation // from the step "confirmed" on
}

func connect() *client {
	connection, err := amqp.DialConfig(url, amqp.Config{Heartbeat: 10 * time.Second, Locale: "en_US"})
	must(err)
	c := &client{connection: connection}
	c.channel = c.another()
	return c
}

func (c *client) another() *amqp.Channel {
	channel, err := c.connection.Channel()
	must(err)
	return channel
}

func limits(length int) amqp.Table {
	return amqp.Table{
		"x-max-length": int32(length), "x-message-ttl": int32(3600_000), "x-dead-letter-exchange": "dead",
	}
}

func (c *client) declare() {
	must(c.channel.ExchangeDeclare("unrouted", "fanout", true, false, false, false, nil))
	must(c.channel.ExchangeDeclare("dead", "fanout", true, false, false, false, nil))
	alternate := amqp.Table{"alternate-exchange": "unrouted"}
	must(c.channel.ExchangeDeclare("events", "topic", true, false, false, false, alternate))
	_, err := c.channel.QueueDeclare("dead", true, false, false, false, nil)
	must(err)
	must(c.channel.QueueBind("dead", "", "dead", false, nil))
	for again := 0; again < 2; again++ {
		queue, err := c.channel.QueueDeclare("orders", true, false, false, false, limits(1000))
		must(err)
		equal(amqp.Queue{Name: "orders"}, queue)
	}
	must(c.channel.QueueBind("orders", "order.#", "events", false, amqp.Table{"note": "by go"}))
	step("declared")
}

func persistent(body []byte) amqp.Publishing {
	return amqp.Publishing{DeliveryMode: amqp.Persistent, Body: body}
}

func (c *client) send(key string, message amqp.Publishing) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	must(c.channel.PublishWithContext(ctx, "events", key, true, false, message))
	check(take(c.confirms).Ack, "refused")
}

func (c *client) publish(text string) {
	c.send("order.new", persistent([]byte(text)))
}

func (c *client) pop(queue string, autoAck bool) amqp.Delivery {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		got, ok, err := c.channel.Get(queue, autoAck)
		must(err)
		if ok {
			return got
		}
	}
	panic("nothing came")
}

func (c *client) count(queue string) int {
	passive, err := c.channel.QueueInspect(queue)
	must(err)
	return passive.Messages
}

// A deferred confirmation of amqp091-go 1.5 is registered after the message is sent, and misses a confirm that comes
// before that. A listener misses none.
func (c *client) selectConfirms() {
	must(c.channel.Confirm(false))
	c.confirms = c.channel.NotifyPublish(make(chan amqp.Confirmation, 1))
}

func (c *client) confirm() {
	c.selectConfirms()
	moment := time.Unix(1_700_000_000, 0)
	sent := amqp.Publishing{
		Headers: amqp.Table{
			"text": "Grüße", "long": int64(1 << 40), "int": int32(-7), "short": int16(-8), "double": 0.25,
			"float": float32(0.5), "yes": true, "nothing": nil, "bytes": []byte{0, 1, 0xCE}, "time": moment,
			"decimal": amqp.Decimal{Scale: 2, Value: 12345}, "list": []any{int32(1), "two"},
			"table": amqp.Table{"inner": int32(3)},
		},
		ContentType: "text/plain", ContentEncoding: "utf-8", DeliveryMode: amqp.Persistent, Priority: 3,
		CorrelationId: "c-1", ReplyTo: "answers", Expiration: "3600000", MessageId: "m-1", Timestamp: moment,
		Type: "order", UserId: "guest", AppId: "shop", Body: []byte("with properties"),
	}
	c.send("order.new", sent)
	got := c.pop("orders", true)
	equal("events order.new", got.Exchange+" "+got.RoutingKey)
	equal(sent, amqp.Publishing{
		Headers: got.Headers, ContentType: got.ContentType, ContentEncoding: got.ContentEncoding,
		DeliveryMode: got.DeliveryMode, Priority: got.Priority, CorrelationId: got.CorrelationId,
		ReplyTo: got.ReplyTo, Expiration: got.Expiration, MessageId: got.MessageId, Timestamp: got.Timestamp,
		Type: got.Type, UserId: got.UserId, AppId: got.AppId, Body: got.Body,
	})
	step("confirmed")
}

func (c *client) takeBack() {
	returns := c.channel.NotifyReturn(make(chan amqp.Return, 1))
	c.send("nobody", persistent([]byte("lost")))
	returned := take(returns)
	equal("312 NO_ROUTE events nobody lost", fmt.Sprint(returned.ReplyCode, " ", returned.ReplyText, " ",
		returned.Exchange, " ", returned.RoutingKey, " ", string(returned.Body)))
	step("returned")
}

func (c *client) carryMuch() {
	body := make([]byte, 3<<20)
	rand.New(rand.NewSource(1)).Read(body)
	c.send("order.large", persistent(body))
	got := c.pop("orders", false)
	check(bytes.Equal(body, got.Body), "3 MiB came back changed")
	must(got.Ack(false))
	step("carried 3 MiB")
}

func (c *client) consume() {
	for number := 0; number < 5; number++ {
		c.publish(fmt.Sprint("order ", number))
	}
	channel := c.another()
	must(channel.Qos(2, 0, false))
	deliveries, err := channel.Consume("orders", "worker", false, false, false, false, nil)
	must(err)
	for _, numbers := range [][]int{{0, 1}, {2, 3}, {4}} {
		var last amqp.Delivery
		for _, number := range numbers {
			last = take(deliveries)
			equal(fmt.Sprint("order ", number), string(last.Body))
		}
		select {
		case <-deliveries:
			panic("more came than the prefetch allows")
		case <-time.After(200 * time.Millisecond):
		}
		must(last.Ack(true))
	}
	must(channel.Cancel("worker", false))
	must(channel.Close())
	equal(0, c.count("orders"))
	step("consumed with prefetch")
}

func (c *client) requeue() {
	c.publish("again")
	got := c.pop("orders", false)
	check(!got.Redelivered, "redelivered at first")
	must(got.Nack(false, true))
	got = c.pop("orders", false)
	equal("again true", fmt.Sprint(string(got.Body), " ", got.Redelivered))
	must(got.Reject(true))
	step("requeued")
}

func (c *client) deadLetter() {
	must(c.pop("orders", false).Nack(false, false))
	dead := c.pop("dead", true)
	equal("again", string(dead.Body))
	death := dead.Headers["x-death"].([]any)[0].(amqp.Table)
	delete(death, "time")
	equal(amqp.Table{
		"queue": "orders", "reason": "rejected", "exchange": "events", "routing-keys": []any{"order.new"},
		"count": int64(1),
	}, death)
	equal("orders", dead.Headers["x-first-death-queue"])
	step("dead-lettered")
}

func (c *client) get() {
	c.publish("first")
	c.publish("second")
	got := c.pop("orders", true)
	equal("first 1", fmt.Sprint(string(got.Body), " ", got.MessageCount))
	equal("second", string(c.pop("orders", true).Body))
	_, ok, err := c.channel.Get("orders", true)
	must(err)
	check(!ok, "a message in an empty queue")
	step("got")
}

func (c *client) callDirectly() {
	serving, calling := c.another(), c.another()
	_, err := serving.QueueDeclare("service", false, false, true, false, nil)
	must(err)
	requests, err := serving.Consume("service", "", true, false, false, false, nil)
	must(err)
	go func() {
		for request := range requests {
			reply := amqp.Publishing{
				CorrelationId: request.CorrelationId, Body: append([]byte("re: "), request.Body...),
			}
			must(serving.PublishWithContext(context.Background(), "", request.ReplyTo, false, false, reply))
		}
	}()
	replies, err := calling.Consume("amq.rabbitmq.reply-to", "", true, false, false, false, nil)
	must(err)
	for _, question := range []string{"question", "another"} {
		call := amqp.Publishing{
			CorrelationId: "id of " + question, ReplyTo: "amq.rabbitmq.reply-to", Body: []byte(question),
		}
		must(calling.PublishWithContext(context.Background(), "", "service", true, false, call))
		reply := take(replies)
		equal("id of "+question+" re: "+question, reply.CorrelationId+" "+string(reply.Body))
	}
	must(calling.Close())
	must(serving.Close())
	_, err = c.channel.QueueDelete("service", false, false, false)
	must(err)
	step("replied directly")
}

func (c *client) transact() {
	channel := c.another()
	must(channel.Tx())
	publish := func(text string) {
		message := persistent([]byte(text))
		must(channel.PublishWithContext(context.Background(), "events", "order.tx", true, false, message))
	}
	publish("regretted")
	must(channel.TxRollback())
	publish("meant")
	equal(0, c.count("orders"))
	must(channel.TxCommit())
	equal(1, c.count("orders"))
	got, ok, err := channel.Get("orders", false)
	must(err)
	check(ok, "what was committed is not there")
	equal("meant", string(got.Body))
	must(got.Ack(false))
	must(channel.TxCommit())
	must(channel.Close())
	equal(0, c.count("orders"))
	step("committed and rolled back")
}

func (c *client) loseQueue() {
	_, err := c.channel.QueueDeclare("temporary", true, false, false, false, nil)
	must(err)
	channel := c.another()
	cancelled := channel.NotifyCancel(make(chan string, 1))
	deliveries, err := channel.Consume("temporary", "watcher", false, false, false, false, nil)
	must(err)
	_, err = c.channel.QueueDelete("temporary", false, false, false)
	must(err)
	equal("watcher", take(cancelled))
	_, open := <-deliveries
	check(!open, "a delivery of a deleted queue")
	check(!channel.IsClosed(), "the channel went with the queue")
	must(channel.Close())
	step("told of the deleted queue")
}

func (c *client) beRefused() {
	_, err := c.another().QueueInspect("missing")
	refused(err)
	_, err = c.another().QueueDeclare("orders", true, false, false, false, limits(5))
	refused(err)
}

func refused(err error) {
	refusal, ok := err.(*amqp.Error)
	check(ok, "not refused: %v", err)
	step(fmt.Sprint(refusal.Code, " ", refusal.Reason))
}

// This client leaves it to the application to connect anew.
func (c *client) recover() {
	c.publish("kept")
	equal("kept", string(c.pop("orders", false).Body))
	ends := c.connection.NotifyClose(make(chan *amqp.Error, 1))

	step("restart the broker")
	_, err := bufio.NewReader(os.Stdin).ReadString('\n')
	must(err)
	equal(320, take(ends).Code)
	*c = *connect()
	c.selectConfirms()
	deliveries, err := c.channel.Consume("orders", "worker", false, false, false, false, nil)
	must(err)
	again := take(deliveries)
	equal("kept true", fmt.Sprint(string(again.Body), " ", again.Redelivered))
	must(again.Ack(false))
	c.publish("after it")
	last := take(deliveries)
	equal("after it false", fmt.Sprint(string(last.Body), " ", last.Redelivered))
	must(last.Ack(false))
	must(c.channel.Cancel("worker", false))
	equal(0, c.count("orders"))
	step("recovered")
}
