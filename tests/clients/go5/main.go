// The official Go client of 5.x, told by lines what to do.
//
// {"id": 7, "do": "send", ...} is answered by {"id": 7, "gave": ...} or {"id": 7, "refused": "text"}; what a client does
// by itself is told by {"by": "its name", "event": ...}.  Ends when its input ends.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
	v2 "github.com/apache/rocketmq-clients/golang/v5/protocol/v2"
)

const longestLine = 64 << 20

type fields = map[string]any

type asked struct {
	Id          int64     `json:"id"`
	Do          string    `json:"do"`
	Name        string    `json:"name"`
	By          string    `json:"by"`
	Endpoint    string    `json:"endpoint"`
	Tls         bool      `json:"tls"`
	Key         string    `json:"key"`
	Secret      string    `json:"secret"`
	Topic       string    `json:"topic"`
	Group       string    `json:"group"`
	Filter      string    `json:"filter"`
	Sql         bool      `json:"sql"`
	Checks      bool      `json:"checks"`
	Async       bool      `json:"async"`
	AwaitMs     int64     `json:"await_ms"`
	InvisibleMs int64     `json:"invisible_ms"`
	Max         int32     `json:"max"`
	Messages    []message `json:"messages"`
	Message     message   `json:"message"`
	End         string    `json:"end"`
	Handle      string    `json:"handle"`
	Token       string    `json:"token"`
}

type message struct {
	Body       string            `json:"body"`
	Tag        string            `json:"tag"`
	Keys       []string          `json:"keys"`
	Properties map[string]string `json:"properties"`
	Group      string            `json:"group"`
	DueMs      int64             `json:"due_ms"`
}

type stops interface{ GracefulStop() error }

type subscribes interface {
	Subscribe(topic string, filter *rocketmq.FilterExpression) error
}

// Clients by name, and the messages that simple consumers hold, by token.
var clients, held sync.Map

var writing sync.Mutex

func write(line fields) {
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	writing.Lock()
	defer writing.Unlock()
	os.Stdout.Write(append(text, '\n'))
}

func told(view *rocketmq.MessageView) fields {
	line := fields{
		"body":       string(view.GetBody()),
		"id":         view.GetMessageId(),
		"topic":      view.GetTopic(),
		"tag":        view.GetTag(),
		"keys":       view.GetKeys(),
		"properties": view.GetProperties(),
		"due_ms":     nil,
		"attempt":    view.GetDeliveryAttempt(),
	}
	if line["keys"] == nil || len(view.GetKeys()) == 0 {
		line["keys"] = []string{}
	}
	if len(view.GetProperties()) == 0 {
		line["properties"] = fields{}
	}
	if due := view.GetDeliveryTimestamp(); due != nil {
		line["due_ms"] = due.UnixMilli()
	}
	return line
}

func event(by, what string, view *rocketmq.MessageView) {
	line := told(view)
	line["by"], line["event"], line["at_ms"] = by, what, time.Now().UnixMilli()
	write(line)
}

func made(topic string, from message) *rocketmq.Message {
	made := &rocketmq.Message{Topic: topic, Body: []byte(from.Body)}
	if from.Tag != "" {
		made.SetTag(from.Tag)
	}
	if len(from.Keys) > 0 {
		made.SetKeys(from.Keys...)
	}
	for name, value := range from.Properties {
		made.AddProperty(name, value)
	}
	if from.Group != "" {
		made.SetMessageGroup(from.Group)
	}
	if from.DueMs != 0 {
		made.SetDelayTimestamp(time.UnixMilli(from.DueMs))
	}
	return made
}

// Whether it speaks TLS is a setting of the whole package, which it reads when it connects.
func configuration(of asked) *rocketmq.Config {
	rocketmq.EnableSsl = of.Tls
	return &rocketmq.Config{
		Endpoint:      of.Endpoint,
		ConsumerGroup: of.Group,
		Credentials:   &credentials.SessionCredentials{AccessKey: of.Key, AccessSecret: of.Secret},
	}
}

func subscriptions(of asked) map[string]*rocketmq.FilterExpression {
	kind := rocketmq.TAG
	if of.Sql {
		kind = rocketmq.SQL92
	}
	return map[string]*rocketmq.FilterExpression{of.Topic: rocketmq.NewFilterExpressionWithType(of.Filter, kind)}
}

// Says of a transaction what the first word of the body says.
func checker(name string) *rocketmq.TransactionChecker {
	return &rocketmq.TransactionChecker{Check: func(view *rocketmq.MessageView) rocketmq.TransactionResolution {
		event(name, "checked", view)
		switch word, _, _ := strings.Cut(string(view.GetBody()), " "); word {
		case "COMMIT":
			return rocketmq.COMMIT
		case "ROLLBACK":
			return rocketmq.ROLLBACK
		}
		return rocketmq.UNKNOWN
	}}
}

// Fails each message whose body begins with "fail N" N times.
func listener(name string) *rocketmq.FuncMessageListener {
	var attempts sync.Map
	return &rocketmq.FuncMessageListener{Consume: func(view *rocketmq.MessageView) rocketmq.ConsumerResult {
		event(name, "received", view)
		words := strings.Fields(string(view.GetBody()))
		if len(words) < 2 || words[0] != "fail" {
			return rocketmq.SUCCESS
		}
		times, _ := strconv.Atoi(words[1])
		seen, _ := attempts.LoadOrStore(view.GetMessageId(), new(int))
		*seen.(*int)++
		if *seen.(*int) > times {
			return rocketmq.SUCCESS
		}
		return rocketmq.FAILURE
	}}
}

func find[T any](name string) (T, error) {
	found, _ := clients.Load(name)
	client, ok := found.(T)
	if !ok {
		return client, fmt.Errorf("no such client: %s", name)
	}
	return client, nil
}

func producer(of asked) (any, error) {
	options := []rocketmq.ProducerOption{rocketmq.WithTopics(of.Topic)}
	if of.Checks {
		options = append(options, rocketmq.WithTransactionChecker(checker(of.Name)))
	}
	client, err := rocketmq.NewProducer(configuration(of), options...)
	if err != nil {
		return nil, err
	}
	if err = client.Start(); err != nil {
		return nil, err
	}
	clients.Store(of.Name, client)
	return true, nil
}

func simple(of asked) (any, error) {
	client, err := rocketmq.NewSimpleConsumer(
		configuration(of),
		rocketmq.WithSimpleAwaitDuration(time.Duration(of.AwaitMs)*time.Millisecond),
		rocketmq.WithSimpleSubscriptionExpressions(subscriptions(of)),
	)
	if err != nil {
		return nil, err
	}
	if err = client.Start(); err != nil {
		return nil, err
	}
	clients.Store(of.Name, client)
	return true, nil
}

func push(of asked) (any, error) {
	client, err := rocketmq.NewPushConsumer(
		configuration(of),
		rocketmq.WithPushSubscriptionExpressions(subscriptions(of)),
		rocketmq.WithPushMessageListener(listener(of.Name)),
	)
	if err != nil {
		return nil, err
	}
	if err = client.Start(); err != nil {
		return nil, err
	}
	clients.Store(of.Name, client)
	return true, nil
}

// A consumer of the lite topics of a topic.
func lite(of asked) (any, error) {
	client, err := rocketmq.NewLitePushConsumer(
		configuration(of),
		rocketmq.NewLitePushConsumerConfig(of.Topic, 30*time.Second),
		rocketmq.WithPushMessageListener(listener(of.Name)),
	)
	if err != nil {
		return nil, err
	}
	if err = client.Start(); err != nil {
		return nil, err
	}
	clients.Store(of.Name, client)
	return true, nil
}

func receipt(of *rocketmq.SendReceipt) fields {
	line := fields{"id": of.MessageID, "handle": nil}
	if of.RecallHandle != "" {
		line["handle"] = of.RecallHandle
	}
	return line
}

func send(of asked) (any, error) {
	client, err := find[rocketmq.Producer](of.By)
	if err != nil {
		return nil, err
	}
	gave := make([]fields, len(of.Messages))
	if !of.Async {
		for i, each := range of.Messages {
			receipts, err := client.Send(context.Background(), made(of.Topic, each))
			if err != nil {
				return nil, err
			}
			gave[i] = receipt(receipts[0])
		}
		return gave, nil
	}
	errors := make([]error, len(of.Messages))
	var waiting sync.WaitGroup
	waiting.Add(len(of.Messages))
	for i, each := range of.Messages {
		client.SendAsync(context.Background(), made(of.Topic, each),
			func(_ context.Context, receipts []*rocketmq.SendReceipt, err error) {
				defer waiting.Done()
				if errors[i] = err; err == nil {
					gave[i] = receipt(receipts[0])
				}
			})
	}
	waiting.Wait()
	for _, err := range errors {
		if err != nil {
			return nil, err
		}
	}
	return gave, nil
}

// A message whose transaction ends as `end` says; "": it does not.
func transaction(of asked) (any, error) {
	client, err := find[rocketmq.Producer](of.By)
	if err != nil {
		return nil, err
	}
	begun := client.BeginTransaction()
	receipts, err := client.SendWithTransaction(context.Background(), made(of.Topic, of.Message), begun)
	if err != nil {
		return nil, err
	}
	switch of.End {
	case "commit":
		err = begun.Commit()
	case "rollback":
		err = begun.RollBack()
	}
	return receipts[0].MessageID, err
}

func recall(of asked) (any, error) {
	client, err := find[rocketmq.Producer](of.By)
	if err != nil {
		return nil, err
	}
	return client.Recall(context.Background(), of.Topic, of.Handle)
}

// That there is no message is an error to this client, and none here.
func receive(of asked) (any, error) {
	client, err := find[rocketmq.SimpleConsumer](of.By)
	if err != nil {
		return nil, err
	}
	invisible := time.Duration(of.InvisibleMs) * time.Millisecond
	views, err := client.Receive(context.Background(), of.Max, invisible)
	if status, ok := rocketmq.AsErrRpcStatus(err); ok && status.Code == int32(v2.Code_MESSAGE_NOT_FOUND) {
		return []fields{}, nil
	}
	if err != nil {
		return nil, err
	}
	gave := make([]fields, len(views))
	for i, view := range views {
		token := fmt.Sprintf("%s/%d", view.GetMessageId(), view.GetDeliveryAttempt())
		held.Store(token, view)
		gave[i] = told(view)
		gave[i]["token"] = token
	}
	return gave, nil
}

func holding(of asked) (rocketmq.SimpleConsumer, *rocketmq.MessageView, error) {
	client, err := find[rocketmq.SimpleConsumer](of.By)
	if err != nil {
		return nil, nil, err
	}
	view, ok := held.Load(of.Token)
	if !ok {
		return nil, nil, fmt.Errorf("no such token: %s", of.Token)
	}
	return client, view.(*rocketmq.MessageView), nil
}

func ack(of asked) (any, error) {
	client, view, err := holding(of)
	if err != nil {
		return nil, err
	}
	return true, client.Ack(context.Background(), view)
}

func change(of asked) (any, error) {
	client, view, err := holding(of)
	if err != nil {
		return nil, err
	}
	return true, client.ChangeInvisibleDuration(view, time.Duration(of.InvisibleMs)*time.Millisecond)
}

func subscribe(of asked) (any, error) {
	client, err := find[subscribes](of.By)
	if err != nil {
		return nil, err
	}
	return true, client.Subscribe(of.Topic, subscriptions(of)[of.Topic])
}

func stop(of asked) (any, error) {
	client, err := find[stops](of.Name)
	if err != nil {
		return nil, err
	}
	clients.Delete(of.Name)
	return true, client.GracefulStop()
}

var verbs = map[string]func(asked) (any, error){
	"producer": producer, "send": send, "transaction": transaction, "recall": recall, "simple": simple,
	"receive": receive, "ack": ack, "change": change, "subscribe": subscribe, "push": push, "lite": lite, "close": stop,
}

func answer(text []byte) {
	var of asked
	if err := json.Unmarshal(text, &of); err != nil {
		panic(err)
	}
	verb, ok := verbs[of.Do]
	if !ok {
		write(fields{"id": of.Id, "refused": "this client cannot " + of.Do})
		return
	}
	gave, err := verb(of)
	if err != nil {
		fmt.Fprintln(os.Stderr, of.Do, err)
		write(fields{"id": of.Id, "refused": err.Error()})
		return
	}
	write(fields{"id": of.Id, "gave": gave})
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, longestLine)
	for lines.Scan() {
		text := append([]byte(nil), lines.Bytes()...)
		go answer(text)
	}
}
