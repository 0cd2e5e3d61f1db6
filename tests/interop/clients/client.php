<?php

// What an application in PHP does with a broker, in steps; each prints a line. Arguments: host, port.

declare(strict_types=1);

require 'PhpAmqpLib/autoload.php';

use PhpAmqpLib\Channel\AMQPChannel;
use PhpAmqpLib\Connection\AMQPStreamConnection;
use PhpAmqpLib\Exception\AMQPBasicCancelException;
use PhpAmqpLib\Exception\AMQPConnectionClosedException;
use PhpAmqpLib\Exception\AMQPProtocolChannelException;
use PhpAmqpLib\Exception\AMQPTimeoutException;
use PhpAmqpLib\Message\AMQPMessage;
use PhpAmqpLib\Wire\AMQPTable;

const PATIENCE_S = 60;
error_reporting(E_ALL);
set_error_handler(function (int $level, string $text, string $file, int $line): bool {
    if (!(error_reporting() & $level) || str_starts_with($file, '/usr/share/php')) {
        return false; // the client's own affair
    }
    throw new ErrorException($text, 0, $level, $file, $line);
});

function step(string $passed): void
{
    echo $passed, "\n";
}

function check(bool $right, string $otherwise): void
{
    if (!$right) {
        throw new RuntimeException($otherwise);
    }
}

function equal(mixed $expected, mixed $actual): void
{
    check($expected === $actual, var_export($actual, true) . ' instead of ' . var_export($expected, true));
}

function persistent(string $body): AMQPMessage
{
    return new AMQPMessage($body, ['delivery_mode' => AMQPMessage::DELIVERY_MODE_PERSISTENT]);
}

class Client
{
    private AMQPStreamConnection $connection;
    private AMQPChannel $channel;
    private int $confirmed = 0;

    public function __construct(private string $host, private int $port)
    {
        $this->connection = new AMQPStreamConnection(
            $host,
            $port,
            'guest',
            'guest',
            connection_timeout: PATIENCE_S,
            read_write_timeout: PATIENCE_S,
            heartbeat: 20
        );
        $this->channel = $this->connection->channel();
        step('connected');
    }

    private static function limits(int $length): AMQPTable
    {
        return new AMQPTable([
            'x-max-length' => $length, 'x-message-ttl' => 3600000, 'x-dead-letter-exchange' => 'dead',
        ]);
    }

    public function declare(): void
    {
        $this->channel->exchange_declare('unrouted', 'fanout', durable: true, auto_delete: false);
        $this->channel->exchange_declare('dead', 'fanout', durable: true, auto_delete: false);
        $alternate = new AMQPTable(['alternate-exchange' => 'unrouted']);
        $this->channel->exchange_declare('events', 'topic', false, true, false, false, false, $alternate);
        $this->channel->queue_declare('dead', durable: true, auto_delete: false);
        $this->channel->queue_bind('dead', 'dead');
        for ($again = 0; $again < 2; $again++) {
            $declared = $this->channel->queue_declare('orders', false, true, false, false, false, self::limits(1000));
            equal(['orders', 0, 0], $declared);
        }
        $this->channel->queue_bind('orders', 'events', 'order.#', false, new AMQPTable(['note' => 'by php']));
        step('declared');
    }

    private function send(AMQPMessage $message, string $key): void
    {
        $before = $this->confirmed;
        $this->channel->basic_publish($message, 'events', $key, mandatory: true);
        $this->channel->wait_for_pending_acks_returns(PATIENCE_S);
        equal($before + 1, $this->confirmed);
    }

    private function publish(string $text): void
    {
        $this->send(persistent($text), 'order.new');
    }

    private function pop(string $queue, bool $noAck = false): AMQPMessage
    {
        for ($tries = 0; $tries < PATIENCE_S * 20; $tries++) {
            $got = $this->channel->basic_get($queue, $noAck);
            if ($got !== null) {
                return $got;
            }
            usleep(50000);
        }
        throw new RuntimeException('nothing came');
    }

    private function count(string $queue): int
    {
        return $this->channel->queue_declare($queue, passive: true)[1];
    }

    private function confirming(): void
    {
        $this->channel->set_ack_handler(function (): void {
            $this->confirmed++;
        });
        $this->channel->set_nack_handler(fn () => throw new RuntimeException('refused'));
        $this->channel->confirm_select();
    }

    public function confirm(): void
    {
        $this->confirming();
        $headers = [
            'text' => 'Grüße', 'long' => 1 << 40, 'int' => -7, 'yes' => true, 'nothing' => null,
            'time' => new DateTime('@1700000000'), 'list' => [1, 'two'], 'table' => ['inner' => 3],
        ];
        $properties = [
            'content_type' => 'text/plain', 'content_encoding' => 'utf-8', 'delivery_mode' => 2, 'priority' => 3,
            'correlation_id' => 'c-1', 'reply_to' => 'answers', 'expiration' => '3600000', 'message_id' => 'm-1',
            'timestamp' => 1700000000, 'type' => 'order', 'user_id' => 'guest', 'app_id' => 'shop',
        ];
        $sent = $properties + ['application_headers' => new AMQPTable($headers)];
        $this->send(new AMQPMessage('with properties', $sent), 'order.new');
        $got = $this->pop('orders', true);
        equal('with properties', $got->getBody());
        equal(['events', 'order.new'], [$got->getExchange(), $got->getRoutingKey()]);
        foreach ($properties as $name => $value) {
            equal($value, $got->get($name));
        }
        $received = $got->get('application_headers')->getNativeData();
        equal(1700000000, $received['time']->getTimestamp());
        unset($received['time'], $headers['time']);
        ksort($received);
        ksort($headers);
        equal($headers, $received);
        step('confirmed');
    }

    public function takeBack(): void
    {
        $returned = null;
        $this->channel->set_return_listener(
            function (int $code, string $text, string $exchange, string $key, AMQPMessage $message) use (&$returned) {
                $returned = [$code, $text, $exchange, $key, $message->getBody()];
            }
        );
        $this->send(persistent('lost'), 'nobody');
        equal([312, 'NO_ROUTE', 'events', 'nobody', 'lost'], $returned);
        step('returned');
    }

    public function carryMuch(): void
    {
        $body = random_bytes(3 << 20);
        $this->send(persistent($body), 'order.large');
        $got = $this->pop('orders');
        check($body === $got->getBody(), '3 MiB came back changed');
        $got->ack();
        step('carried 3 MiB');
    }

    public function consume(): void
    {
        for ($number = 0; $number < 5; $number++) {
            $this->publish("order $number");
        }
        $channel = $this->connection->channel();
        $channel->basic_qos(0, 2, false);
        $deliveries = [];
        $channel->basic_consume('orders', 'worker', callback: function (AMQPMessage $message) use (&$deliveries) {
            $deliveries[] = $message;
        });
        foreach ([[0, 1], [2, 3], [4]] as $numbers) {
            while (count($deliveries) < count($numbers)) {
                $channel->wait(null, false, PATIENCE_S);
            }
            foreach ($numbers as $at => $number) {
                equal("order $number", $deliveries[$at]->getBody());
            }
            try {
                $channel->wait(null, false, 0.2);
                throw new RuntimeException('more came than the prefetch allows');
            } catch (AMQPTimeoutException) {
                end($deliveries)->ack(true);
            }
            $deliveries = [];
        }
        $channel->basic_cancel('worker');
        $channel->close();
        equal(0, $this->count('orders'));
        step('consumed with prefetch');
    }

    public function requeue(): void
    {
        $this->publish('again');
        $got = $this->pop('orders');
        check(!$got->isRedelivered(), 'redelivered at first');
        $got->nack(true);
        $got = $this->pop('orders');
        equal(['again', true], [$got->getBody(), $got->isRedelivered()]);
        $got->reject(true);
        step('requeued');
    }

    public function deadLetter(): void
    {
        $this->pop('orders')->nack(false);
        $dead = $this->pop('dead', true);
        equal('again', $dead->getBody());
        $headers = $dead->get('application_headers')->getNativeData();
        $death = $headers['x-death'][0];
        equal(
            ['orders', 'rejected', 'events', ['order.new'], 1],
            [$death['queue'], $death['reason'], $death['exchange'], $death['routing-keys'], $death['count']]
        );
        equal('orders', $headers['x-first-death-queue']);
        step('dead-lettered');
    }

    public function get(): void
    {
        $this->publish('first');
        $this->publish('second');
        $got = $this->pop('orders', true);
        equal(['first', 1], [$got->getBody(), $got->getMessageCount()]);
        equal('second', $this->pop('orders', true)->getBody());
        equal(null, $this->channel->basic_get('orders', true));
        step('got');
    }

    public function callDirectly(): void
    {
        $serving = $this->connection->channel();
        $calling = $this->connection->channel();
        $serving->queue_declare('service', exclusive: true, auto_delete: false);
        $answer = function (AMQPMessage $request) use ($serving): void {
            $reply = new AMQPMessage('re: ' . $request->getBody(), ['correlation_id' => $request->get('correlation_id')]);
            $serving->basic_publish($reply, '', $request->get('reply_to'));
        };
        $serving->basic_consume('service', no_ack: true, callback: $answer);
        $replies = [];
        $calling->basic_consume('amq.rabbitmq.reply-to', no_ack: true, callback: function ($reply) use (&$replies) {
            $replies[] = [$reply->get('correlation_id'), $reply->getBody()];
        });
        foreach (['question', 'another'] as $question) {
            $properties = ['correlation_id' => "id of $question", 'reply_to' => 'amq.rabbitmq.reply-to'];
            $calling->basic_publish(new AMQPMessage($question, $properties), '', 'service');
            $serving->wait(null, false, PATIENCE_S);
            $calling->wait(null, false, PATIENCE_S);
            equal(["id of $question", "re: $question"], array_pop($replies));
        }
        $calling->close();
        $serving->close();
        $this->channel->queue_delete('service');
        step('replied directly');
    }

    public function transact(): void
    {
        $channel = $this->connection->channel();
        $channel->tx_select();
        $channel->basic_publish(persistent('regretted'), 'events', 'order.tx');
        $channel->tx_rollback();
        $channel->basic_publish(persistent('meant'), 'events', 'order.tx');
        equal(0, $this->count('orders'));
        $channel->tx_commit();
        equal(1, $this->count('orders'));
        $got = $channel->basic_get('orders');
        equal('meant', $got->getBody());
        $got->ack();
        $channel->tx_commit();
        $channel->close();
        equal(0, $this->count('orders'));
        step('committed and rolled back');
    }

    public function loseQueue(): void
    {
        $this->channel->queue_declare('temporary', durable: true, auto_delete: false);
        $channel = $this->connection->channel();
        $channel->basic_consume('temporary', 'watcher', callback: fn () => throw new RuntimeException('a message'));
        $this->channel->queue_delete('temporary');
        try {
            $channel->wait(null, false, PATIENCE_S);
            throw new RuntimeException('not told of the deleted queue');
        } catch (AMQPBasicCancelException $cancel) {
            equal('watcher', $cancel->consumerTag);
        }
        check($channel->is_open(), 'the channel went with the queue');
        $channel->close();
        step('told of the deleted queue');
    }

    public function beRefused(): void
    {
        $this->refused(fn ($channel) => $channel->queue_declare('missing', passive: true));
        $limits = self::limits(5);
        $this->refused(fn ($channel) => $channel->queue_declare('orders', false, true, false, false, false, $limits));
    }

    private function refused(Closure $act): void
    {
        try {
            $act($this->connection->channel());
            throw new RuntimeException('not refused');
        } catch (AMQPProtocolChannelException $refusal) {
            step($refusal->amqp_reply_code . ' ' . $refusal->amqp_reply_text);
        }
    }

    /** The client connects anew when it is told to. */
    public function recover(): void
    {
        $this->publish('kept');
        equal('kept', $this->pop('orders')->getBody());

        step('restart the broker');
        try {
            $this->channel->wait(null, false, PATIENCE_S);
            throw new RuntimeException('the connection did not end');
        } catch (AMQPConnectionClosedException $end) {
            equal(320, $end->getCode());
        }
        check(fgets(STDIN) !== false, 'nobody has restarted the broker');
        $this->connection->reconnect();
        $this->channel = $this->connection->channel();
        $this->confirming();
        $deliveries = [];
        $this->channel->basic_consume('orders', 'worker', callback: function ($message) use (&$deliveries) {
            $deliveries[] = [$message->getBody(), $message->isRedelivered()];
            $message->ack();
        });
        while (count($deliveries) < 1) {
            $this->channel->wait(null, false, PATIENCE_S);
        }
        $this->publish('after it');
        while (count($deliveries) < 2) {
            $this->channel->wait(null, false, PATIENCE_S);
        }
        equal([['kept', true], ['after it', false]], $deliveries);
        $this->channel->basic_cancel('worker');
        equal(0, $this->count('orders'));
        step('recovered');
    }

    public function close(): void
    {
        $this->connection->close();
        step('closed');
    }
}

$client = new Client($argv[1], (int) $argv[2]);
$client->declare();
$client->confirm();
$client->takeBack();
$client->carryMuch();
$client->consume();
$client->requeue();
$client->deadLetter();
$client->get();
$client->callDirectly();
$client->transact();
$client->loseQueue();
$client->beRefused();
$client->recover();
$client->close();
