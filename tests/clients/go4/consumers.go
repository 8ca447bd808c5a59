package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// consumers are the push consumers that were asked for, by their names.
type consumers struct {
	mutex     sync.Mutex
	pushed    map[string]rocketmq.PushConsumer
	producers *producers
}

func newConsumers() *consumers {
	return &consumers{pushed: map[string]rocketmq.PushConsumer{}}
}

var froms = map[string]consumer.ConsumeFromWhere{
	"":                          consumer.ConsumeFromLastOffset,
	"CONSUME_FROM_LAST_OFFSET":  consumer.ConsumeFromLastOffset,
	"CONSUME_FROM_FIRST_OFFSET": consumer.ConsumeFromFirstOffset,
	"CONSUME_FROM_TIMESTAMP":    consumer.ConsumeFromTimestamp,
}

// options are those that push and pull consumers have.
func options(a *asked) []consumer.Option {
	made := []consumer.Option{
		consumer.WithGroupName(a.Group),
		consumer.WithInstance(a.Name),
		consumer.WithNsResolver(a.resolver()),
		consumer.WithNamespace(a.Namespace),
		consumer.WithConsumeFromWhere(froms[a.From]),
	}
	if a.FromTime != "" {
		made = append(made, consumer.WithConsumeTimestamp(a.FromTime))
	}
	if a.Key != "" {
		made = append(made, consumer.WithCredentials(a.credentials()))
	}
	if a.Trace {
		made = append(made, consumer.WithTrace(a.trace()))
	}
	if a.Model == "BROADCASTING" {
		made = append(made, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	if a.Retries != 0 {
		made = append(made, consumer.WithMaxReconsumeTimes(a.Retries))
	}
	return made
}

func (a *asked) selector() consumer.MessageSelector {
	kind := consumer.TAG
	if a.Sql {
		kind = consumer.SQL92
	}
	return consumer.MessageSelector{Type: kind, Expression: a.Filter}
}

// start makes a consumer that fails each message whose body begins with "fail N" in its first N deliveries.
func (c *consumers) start(a *asked) (interface{}, error) {
	made, err := rocketmq.NewPushConsumer(append(options(a), consumer.WithConsumerOrder(a.Orderly))...)
	if err != nil {
		return nil, err
	}
	took := func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		well := true
		for _, message := range messages {
			tell(a.Name, "received", told(message))
			words := strings.Fields(string(message.Body))
			if len(words) > 1 && words[0] == "fail" {
				times, err := strconv.Atoi(words[1])
				well = well && err == nil && int(message.ReconsumeTimes) >= times
			}
			if len(words) > 2 && words[0] == "ask" {
				well = well && c.reply(words, message) == nil
			}
		}
		if well {
			return consumer.ConsumeSuccess, nil
		}
		if orderly, ok := primitive.GetOrderlyCtx(ctx); ok && a.Orderly {
			orderly.SuspendCurrentQueueTimeMillis = 100
			return consumer.SuspendCurrentQueueAMoment, nil
		}
		return consumer.ConsumeRetryLater, nil
	}
	for _, topic := range strings.Split(a.Topic, ",") {
		if err := made.Subscribe(topic, a.selector(), took); err != nil {
			return nil, err
		}
	}
	if err := made.Start(); err != nil {
		return nil, err
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.pushed[a.Name] = made
	return true, nil
}

// reply answers "ask NAME TEXT" by the producer of that name; "empty" with what the client makes of any body.
func (c *consumers) reply(words []string, message *primitive.MessageExt) error {
	answer, err := consumer.CreateReplyMessage(message, nil)
	if err != nil {
		return err
	}
	if words[2] != "empty" { // the client takes a body for properties, and sends none
		answer.Body = []byte("reply to " + words[2])
	}
	_, err = c.producers.of(words[1]).SendSync(context.Background(), answer)
	if err != nil {
		tell(words[1], "refused", fields{"error": err.Error()})
	}
	return err
}

func (c *consumers) of(name string) rocketmq.PushConsumer {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.pushed[name]
}

func (c *consumers) suspend(a *asked) (interface{}, error) {
	c.of(a.By).Suspend()
	return true, nil
}

func (c *consumers) resume(a *asked) (interface{}, error) {
	c.of(a.By).Resume()
	return true, nil
}

func (c *consumers) unsubscribe(a *asked) (interface{}, error) {
	return true, c.of(a.By).Unsubscribe(a.Topic)
}

func (c *consumers) close(name string) (bool, error) {
	c.mutex.Lock()
	made := c.pushed[name]
	delete(c.pushed, name)
	c.mutex.Unlock()
	if made == nil {
		return false, nil
	}
	if err := made.Shutdown(); err != nil {
		return true, fmt.Errorf("shutdown: %w", err)
	}
	return true, nil
}
