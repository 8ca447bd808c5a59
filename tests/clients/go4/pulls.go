package main

import (
	"context"
	"errors"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

var statuses = map[primitive.PullStatus]string{
	primitive.PullFound:         "FOUND",
	primitive.PullNoNewMsg:      "NO_NEW_MSG",
	primitive.PullNoMsgMatched:  "NO_MATCHED_MSG",
	primitive.PullOffsetIllegal: "OFFSET_ILLEGAL",
	primitive.PullBrokerTimeout: "BROKER_TIMEOUT",
}

// pulls are the pull consumers that were asked for, by their names.
type pulls struct {
	mutex sync.Mutex
	made  map[string]rocketmq.PullConsumer
	read  map[primitive.MessageQueue]int64
}

func newPulls() *pulls {
	return &pulls{made: map[string]rocketmq.PullConsumer{}, read: map[primitive.MessageQueue]int64{}}
}

func (p *pulls) start(a *asked) (interface{}, error) {
	made, err := rocketmq.NewPullConsumer(options(a)...)
	if err != nil {
		return nil, err
	}
	if err := made.Subscribe(a.Topic, a.selector()); err != nil {
		return nil, err
	}
	if err := made.Start(); err != nil {
		return nil, err
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.made[a.Name] = made
	return true, nil
}

func (p *pulls) of(name string) rocketmq.PullConsumer {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.made[name]
}

func toldPull(result *primitive.PullResult) fields {
	return fields{
		"status":   statuses[result.Status],
		"next":     result.NextBeginOffset,
		"least":    result.MinOffset,
		"end":      result.MaxOffset,
		"messages": toldAll(result.GetMessageExts()),
	}
}

func queue(a *asked) *primitive.MessageQueue {
	return &primitive.MessageQueue{Topic: a.Topic, BrokerName: "broker-a", QueueId: a.Queue}
}

// pulled is one pull of a named queue, and what the broker says about the offsets.
func (p *pulls) pulled(a *asked) (interface{}, error) {
	result, err := p.of(a.By).PullFrom(context.Background(), queue(a), a.Offset, a.Max)
	if err != nil {
		return nil, err
	}
	return toldPull(result), nil
}

// poll waits for what the client has pulled by itself, and acknowledges it; "how" fails it.
func (p *pulls) poll(a *asked) (interface{}, error) {
	made := p.of(a.By)
	request, err := made.Poll(context.Background(), time.Duration(a.WaitMs)*time.Millisecond)
	if errors.Is(err, consumer.ErrNoNewMsg) {
		return []fields{}, nil
	}
	if err != nil {
		return nil, err
	}
	result := consumer.ConsumeSuccess
	if a.How == "fail" {
		result = consumer.ConsumeRetryLater
	}
	gave := toldAll(request.GetMsgList())
	made.ACK(context.Background(), request, result)
	return gave, nil
}

func (p *pulls) persist(a *asked) (interface{}, error) {
	made := p.of(a.By)
	if err := made.PersistOffset(context.Background(), a.Topic); err != nil {
		return nil, err
	}
	return made.CurrentOffset(queue(a))
}

// pullAll gives what no call before this one has read of the first queue of a topic.
func (p *pulls) pullAll(a *asked) (interface{}, error) {
	made := p.of(a.Name)
	if made == nil {
		a.Filter = "*"
		if _, err := p.start(a); err != nil {
			return nil, err
		}
		made = p.of(a.Name)
	}
	found := []fields{}
	for {
		result, err := made.PullFrom(context.Background(), queue(a), p.read[*queue(a)], 32)
		if err != nil {
			return nil, err
		}
		p.read[*queue(a)] = result.NextBeginOffset
		found = append(found, toldAll(result.GetMessageExts())...)
		if result.NextBeginOffset >= result.MaxOffset {
			return found, nil
		}
	}
}

func (p *pulls) close(name string) (bool, error) {
	p.mutex.Lock()
	made := p.made[name]
	delete(p.made, name)
	p.mutex.Unlock()
	if made == nil {
		return false, nil
	}
	return true, made.Shutdown()
}
