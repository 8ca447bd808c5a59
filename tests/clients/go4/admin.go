package main

import (
	"context"
	"fmt"
	"time"

	"github.com/apache/rocketmq-client-go/v2/admin"
)

// administer makes a client for one request, and closes it.
func administer(a *asked) (interface{}, error) {
	options := []admin.AdminOption{admin.WithResolver(a.resolver())}
	if a.Key != "" {
		options = append(options, admin.WithCredentials(a.credentials()))
	}
	made, err := admin.NewAdmin(options...)
	if err != nil {
		return nil, err
	}
	defer made.Close()
	ctx := context.Background()
	switch a.How {
	case "create":
		return true, made.CreateTopic(ctx, admin.WithTopicCreate(a.Topic), admin.WithBrokerAddrCreate(a.BrokerAddr),
			admin.WithReadQueueNums(a.Queues), admin.WithWriteQueueNums(a.Queues))
	case "delete": // at the broker that the route names
		return true, made.DeleteTopic(ctx, admin.WithTopicDelete(a.Topic))
	case "topics":
		found, err := made.FetchAllTopicList(ctx)
		if err != nil {
			return nil, err
		}
		return found.TopicList, nil
	case "groups":
		found, err := made.GetAllSubscriptionGroup(ctx, a.BrokerAddr, 3*time.Second)
		if err != nil {
			return nil, err
		}
		return found.SubscriptionGroupTable, nil
	case "queues":
		found, err := made.FetchPublishMessageQueues(ctx, a.Topic)
		if err != nil {
			return nil, err
		}
		numbers := []int{}
		for _, queue := range found {
			numbers = append(numbers, queue.QueueId)
		}
		return numbers, nil
	}
	return nil, fmt.Errorf("cannot %s", a.How)
}
