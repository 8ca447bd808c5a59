// The official 4.x client of Go, told by lines what to do.
//
// {"id": 7, "do": "send", ...} is answered by {"id": 7, "gave": ...} or {"id": 7, "refused": "text"}. Requests run side
// by side. What a client does by itself is told by {"by": "its name", "event": ...}. The program ends when its input
// ends.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

// fields are of a request or of what is told.
type fields map[string]interface{}

// asked is a request; an absent field is its type's zero.
type asked struct {
	Id         int64
	Do         string
	By         string
	Name       string
	Namesrv    string
	Domain     string
	Namespace  string
	Key        string
	Secret     string
	Trace      bool
	Checks     bool
	Group      string
	Topic      string
	Messages   []composed
	Message    composed
	How        string
	Queue      int
	Times      int
	End        string
	Body       string
	WaitMs     int64 `json:"wait_ms"`
	Filter     string
	Sql        bool
	From       string
	FromTime   string `json:"from_time"`
	Model      string
	Retries    int32
	Orderly    bool
	Offset     int64
	Max        int
	Queues     int
	BrokerAddr string `json:"broker_addr"`
}

// secret is the one that tests of the right secret do not name.
func (a *asked) credentials() primitive.Credentials {
	if a.Key == "" {
		return primitive.Credentials{}
	}
	secret := a.Secret
	if secret == "" {
		secret = "secret-1"
	}
	return primitive.Credentials{AccessKey: a.Key, SecretKey: secret}
}

func (a *asked) resolver() primitive.NsResolver {
	if a.Domain != "" {
		return primitive.NewHttpResolver("DEFAULT", a.Domain)
	}
	return primitive.NewPassthroughResolver([]string{a.Namesrv})
}

// trace is where message traces go: to the same broker.
func (a *asked) trace() *primitive.TraceConfig {
	return &primitive.TraceConfig{
		GroupName:    "trace-" + a.Name,
		Access:       primitive.Local,
		NamesrvAddrs: []string{a.Namesrv},
		Credentials:  a.credentials(),
	}
}

type verb func(*asked) (interface{}, error)

var (
	out     = os.Stdout
	writing sync.Mutex
)

func write(line fields) {
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	writing.Lock()
	defer writing.Unlock()
	fmt.Fprintln(out, string(text))
}

// tell says what a client did by itself.
func tell(by, event string, more fields) {
	more["by"], more["event"] = by, event
	more["at_ms"] = time.Now().UnixNano() / int64(time.Millisecond)
	write(more)
}

func answer(verbs map[string]verb, a *asked) {
	defer func() {
		if fault := recover(); fault != nil {
			write(fields{"id": a.Id, "refused": fmt.Sprintf("panic: %v", fault)})
		}
	}()
	do, known := verbs[a.Do]
	if !known {
		write(fields{"id": a.Id, "refused": "cannot " + a.Do})
		return
	}
	gave, err := do(a)
	if err != nil {
		write(fields{"id": a.Id, "refused": err.Error()})
		return
	}
	write(fields{"id": a.Id, "gave": gave})
}

func main() {
	os.Stdout = os.Stderr // libraries print
	rlog.SetLogLevel("warn")
	sends, consumers, pulls := newProducers(), newConsumers(), newPulls()
	consumers.producers = sends
	verbs := map[string]verb{
		"producer":    sends.start,
		"send":        sends.send,
		"request":     sends.request,
		"transaction": sends.transaction,
		"push":        consumers.start,
		"suspend":     consumers.suspend,
		"resume":      consumers.resume,
		"unsubscribe": consumers.unsubscribe,
		"pull":        pulls.start,
		"pulled":      pulls.pulled,
		"poll":        pulls.poll,
		"persist":     pulls.persist,
		"pull_all":    pulls.pullAll,
		"admin":       administer,
		"close": func(a *asked) (interface{}, error) {
			for _, shut := range []func(string) (bool, error){sends.close, consumers.close, pulls.close} {
				if known, err := shut(a.Name); known || err != nil {
					return known, err
				}
			}
			return nil, fmt.Errorf("nobody is %s", a.Name)
		},
	}
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		text, err := in.ReadBytes('\n')
		if err != nil {
			os.Exit(0) // some threads of the clients do not end
		}
		a := new(asked)
		if err := json.Unmarshal(text, a); err != nil {
			panic(err)
		}
		go answer(verbs, a)
	}
}
