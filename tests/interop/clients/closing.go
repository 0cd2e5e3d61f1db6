// Connections that are closed politely must not report a failure. Arguments: host, port.
package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"
)

var url string

func main() {
	url = fmt.Sprintf("amqp://guest:guest@%s:%s/", os.Args[1], os.Args[2])
	for range make([]struct{}, 100) {
		closeOnce(1)
	}
	fmt.Println("closed by one")
	for range make([]struct{}, 100) {
		closeOnce(2)
	}
	fmt.Println("closed by two")
}

// closeOnce closes a new connection from several goroutines. A late one may find that this client has closed it.
func closeOnce(closers int) {
	connection, err := amqp.Dial(url)
	must(err)
	channel, err := connection.Channel()
	must(err)
	_, err = channel.QueueDeclare("", false, true, true, false, nil)
	must(err)
	failures := connection.NotifyClose(make(chan *amqp.Error, 1))
	var done sync.WaitGroup
	for range make([]struct{}, closers) {
		done.Add(1)
		go func() {
			defer done.Done()
			err := connection.Close()
			late := errors.Is(err, amqp.ErrClosed) || errors.Is(err, net.ErrClosed)
			if closers == 1 || !late {
				must(err)
			}
		}()
	}
	done.Wait()
	if failure := <-failures; failure != nil {
		panic(failure)
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
