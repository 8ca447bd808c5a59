package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// producers are those that were asked for, by their names.
type producers struct {
	mutex       sync.Mutex
	plain       map[string]rocketmq.Producer
	transacting map[string]rocketmq.TransactionProducer
	ends        sync.Map // of transactions, by body
}

func newProducers() *producers {
	return &producers{
		plain:       map[string]rocketmq.Producer{},
		transacting: map[string]rocketmq.TransactionProducer{},
	}
}

// chosen sends to the queue that the caller has named in the message, else to a hash of its sharding key or round robin.
type chosen struct {
	hashed producer.QueueSelector
}

func (c *chosen) Select(m *primitive.Message, queues []*primitive.MessageQueue, last string) *primitive.MessageQueue {
	if m.Queue == nil {
		return c.hashed.Select(m, queues, last)
	}
	for _, queue := range queues {
		if queue.QueueId == m.Queue.QueueId {
			return queue
		}
	}
	return nil
}

func (p *producers) start(a *asked) (interface{}, error) {
	options := []producer.Option{
		producer.WithGroupName(a.Group),
		producer.WithInstanceName(a.Name),
		producer.WithNsResolver(a.resolver()),
		producer.WithNamespace(a.Namespace),
		producer.WithQueueSelector(&chosen{producer.NewHashQueueSelector()}),
		producer.WithRetry(2),
	}
	if a.Key != "" {
		options = append(options, producer.WithCredentials(a.credentials()))
	}
	if a.Trace {
		options = append(options, producer.WithTrace(a.trace()))
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if a.Checks {
		made, err := rocketmq.NewTransactionProducer(&listener{by: a.Name, ends: &p.ends}, options...)
		if err != nil {
			return nil, err
		}
		p.transacting[a.Name] = made
		return true, made.Start()
	}
	made, err := rocketmq.NewProducer(options...)
	if err != nil {
		return nil, err
	}
	p.plain[a.Name] = made
	return true, made.Start()
}

func (p *producers) of(name string) rocketmq.Producer {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.plain[name]
}

func (p *producers) close(name string) (bool, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if made := p.plain[name]; made != nil {
		delete(p.plain, name)
		return true, made.Shutdown()
	}
	if made := p.transacting[name]; made != nil {
		delete(p.transacting, name)
		return true, made.Shutdown()
	}
	return false, nil
}

func receipt(sent *primitive.SendResult) fields {
	status := fmt.Sprintf("status %d", sent.Status)
	if sent.Status == primitive.SendOK {
		status = "SEND_OK"
	}
	return fields{
		"status":    status,
		"id":        sent.MsgID,
		"offset_id": sent.OffsetMsgID,
		"queue":     sent.MessageQueue.QueueId,
		"offset":    sent.QueueOffset,
		"region":    sent.RegionID,
		"traced":    sent.TraceOn,
	}
}

func (p *producers) send(a *asked) (interface{}, error) {
	made := p.of(a.By)
	ctx := context.Background()
	messages := make([]*primitive.Message, 0, len(a.Messages))
	for i := range a.Messages {
		messages = append(messages, a.Messages[i].message(a.Topic))
	}
	if a.How == "queue" {
		for _, message := range messages {
			message.Queue = &primitive.MessageQueue{QueueId: a.Queue}
		}
	}
	if a.How == "async" {
		return sendAsync(ctx, made, messages)
	}
	if a.How == "oneway" {
		for _, message := range messages {
			if err := made.SendOneWay(ctx, message); err != nil {
				return nil, err
			}
		}
		return []fields{}, nil
	}
	requests := make([][]*primitive.Message, 0, len(messages))
	if a.How == "batch" {
		requests = append(requests, messages)
	} else {
		for _, message := range messages {
			requests = append(requests, []*primitive.Message{message})
		}
	}
	if a.How == "again" { // one object, as often as asked for
		for len(requests) < a.Times {
			requests = append(requests, requests[0])
		}
	}
	gave := make([]fields, 0, len(requests))
	for _, request := range requests {
		sent, err := made.SendSync(ctx, request...)
		if err != nil {
			return nil, err
		}
		gave = append(gave, receipt(sent))
	}
	return gave, nil
}

func sendAsync(ctx context.Context, made rocketmq.Producer, messages []*primitive.Message) (interface{}, error) {
	type result struct {
		at   int
		gave fields
		err  error
	}
	results := make(chan result, 2*len(messages)) // a failure may be told twice
	for i, message := range messages {
		at := i
		callback := func(_ context.Context, sent *primitive.SendResult, err error) {
			if err != nil {
				results <- result{at: at, err: err}
			} else {
				results <- result{at: at, gave: receipt(sent)}
			}
		}
		if err := made.SendAsync(ctx, callback, message); err != nil {
			return nil, err
		}
	}
	gave := make([]fields, len(messages))
	for range messages {
		each := <-results
		if each.err != nil {
			return nil, each.err
		}
		gave[each.at] = each.gave
	}
	return gave, nil
}

// request waits for the reply; gives its body.
func (p *producers) request(a *asked) (interface{}, error) {
	wait := time.Duration(a.WaitMs) * time.Millisecond
	if wait == 0 {
		wait = 20 * time.Second
	}
	message := primitive.NewMessage(a.Topic, []byte(a.Body))
	reply, err := p.of(a.By).Request(context.Background(), wait, message)
	if err != nil {
		return nil, err
	}
	if reply == nil {
		return nil, errors.New("no reply")
	}
	return string(reply.Body), nil
}

// --- transactions -----------------------------------------------------------------------------------------------------

// listener ends transactions as a test says; when it is asked, as the first word of the body says.
type listener struct {
	by   string
	ends *sync.Map
}

func state(end string) primitive.LocalTransactionState {
	switch strings.ToLower(end) {
	case "commit":
		return primitive.CommitMessageState
	case "rollback":
		return primitive.RollbackMessageState
	}
	return primitive.UnknowState
}

func (l *listener) ExecuteLocalTransaction(m *primitive.Message) primitive.LocalTransactionState {
	end, _ := l.ends.Load(string(m.Body))
	return state(end.(string))
}

func (l *listener) CheckLocalTransaction(m *primitive.MessageExt) primitive.LocalTransactionState {
	tell(l.by, "checked", told(m))
	return state(strings.Fields(string(m.Body))[0])
}

func (p *producers) transaction(a *asked) (interface{}, error) {
	p.mutex.Lock()
	made := p.transacting[a.By]
	p.mutex.Unlock()
	p.ends.Store(a.Message.Body, a.End)
	sent, err := made.SendMessageInTransaction(context.Background(), a.Message.message(a.Topic))
	if err != nil {
		return nil, err
	}
	return sent.MsgID, nil
}
