package main

import (
	"strconv"
	"strings"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// composed is a message as a test says it.
type composed struct {
	Body       string
	Times      int
	Tag        string
	Keys       []string
	Properties map[string]string
	Reserved   map[string]string // what this client has no method for
	Level      int
	Sharding   string
}

func (c *composed) message(topic string) *primitive.Message {
	body := c.Body
	if c.Times > 0 {
		body = strings.Repeat(body, c.Times)
	}
	made := primitive.NewMessage(topic, []byte(body))
	for _, each := range []map[string]string{c.Properties, c.Reserved} {
		for name, value := range each {
			made.WithProperty(name, value)
		}
	}
	if c.Tag != "" {
		made.WithTag(c.Tag)
	}
	if len(c.Keys) > 0 {
		made.WithKeys(c.Keys)
	}
	if c.Level != 0 {
		made.WithDelayTimeLevel(c.Level)
	}
	if c.Sharding != "" {
		made.WithShardingKey(c.Sharding)
	}
	return made
}

// told is a message as this driver tells it.
func told(m *primitive.MessageExt) fields {
	level, _ := strconv.Atoi(m.GetProperty(primitive.PropertyDelayTimeLevel))
	var tag interface{}
	if text := m.GetTags(); text != "" {
		tag = text
	}
	return fields{
		"body":       string(m.Body),
		"topic":      m.Topic,
		"tag":        tag,
		"keys":       strings.Fields(m.GetKeys()),
		"id":         m.MsgId,
		"offset_id":  m.OffsetMsgId,
		"queue":      m.Queue.QueueId,
		"offset":     m.QueueOffset,
		"retries":    m.ReconsumeTimes,
		"level":      level,
		"born_ms":    m.BornTimestamp,
		"store_ms":   m.StoreTimestamp,
		"store_host": m.StoreHost,
		"properties": m.GetProperties(),
	}
}

func toldAll(messages []*primitive.MessageExt) []fields {
	all := make([]fields, 0, len(messages))
	for _, each := range messages {
		all = append(all, told(each))
	}
	return all
}
