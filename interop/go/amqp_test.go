package interop

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
)

// client is one connection with one session.
type client struct {
	t       *testing.T
	conn    *amqp.Conn
	session *amqp.Session
}

func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func connect(t *testing.T, port int, options *amqp.ConnOptions) *client {
	t.Helper()
	if options == nil {
		options = &amqp.ConnOptions{}
	}
	if options.SASLType == nil {
		options.SASLType = amqp.SASLTypeAnonymous()
	}
	conn, err := amqp.Dial(limited(t), fmt.Sprintf("amqp://127.0.0.1:%d", port), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	session, err := conn.NewSession(limited(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	return &client{t: t, conn: conn, session: session}
}

func (c *client) sender(kind, address string) *amqp.Sender {
	c.t.Helper()
	sender, err := c.session.NewSender(limited(c.t), address, &amqp.SenderOptions{TargetCapabilities: []string{kind}})
	if err != nil {
		c.t.Fatal(err)
	}
	return sender
}

// manual is a receiver whose credit the test gives.
func manual(kind string) *amqp.ReceiverOptions {
	return &amqp.ReceiverOptions{SourceCapabilities: []string{kind}, Credit: -1}
}

func durable() *amqp.ReceiverOptions {
	return &amqp.ReceiverOptions{
		Name: "S", SourceCapabilities: []string{"topic"}, SourceDurability: amqp.DurabilityUnsettledState,
		SourceExpiryPolicy: amqp.ExpiryPolicyNever,
	}
}

func (c *client) receiver(address string, options *amqp.ReceiverOptions) *amqp.Receiver {
	c.t.Helper()
	receiver, err := c.session.NewReceiver(limited(c.t), address, options)
	if err != nil {
		c.t.Fatal(err)
	}
	return receiver
}

func send(t *testing.T, sender *amqp.Sender, message *amqp.Message) {
	t.Helper()
	if err := sender.Send(limited(t), message, nil); err != nil {
		t.Fatal(err)
	}
}

func text(value string) *amqp.Message {
	return &amqp.Message{Value: value}
}

func receive(t *testing.T, receiver *amqp.Receiver) *amqp.Message {
	t.Helper()
	message, err := receiver.Receive(limited(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	return message
}

func accept(t *testing.T, receiver *amqp.Receiver, expected ...string) {
	t.Helper()
	for _, value := range expected {
		message := receive(t, receiver)
		if message.Value != value {
			t.Fatalf("expected %q, got %v", value, message.Value)
		}
		if err := receiver.AcceptMessage(limited(t), message); err != nil {
			t.Fatal(err)
		}
	}
}

// condition is the peer's error condition behind a refused link.
func condition(err error) amqp.ErrCond {
	var link *amqp.LinkError
	if errors.As(err, &link) && link.RemoteErr != nil {
		return link.RemoteErr.Condition
	}
	var remote *amqp.Error
	if errors.As(err, &remote) {
		return remote.Condition
	}
	return ""
}

func TestAMessageComesBackAsItWasSent(t *testing.T) {
	b := startBroker(t)
	c := connect(t, b.port, nil)
	subject := "s"
	message := &amqp.Message{
		Header:                &amqp.MessageHeader{Durable: true, Priority: 7},
		Properties:            &amqp.MessageProperties{MessageID: "m1", CorrelationID: "c1", Subject: &subject},
		ApplicationProperties: map[string]any{"i": int64(1), "t": "text", "b": true},
		Data:                  [][]byte{[]byte("body")},
	}
	send(t, c.sender("queue", "q"), message)
	b.restart()
	receiver := connect(t, b.port, nil).receiver("q", &amqp.ReceiverOptions{SourceCapabilities: []string{"queue"}})
	got := receive(t, receiver)
	if string(got.GetData()) != "body" || got.Properties.MessageID != "m1" || *got.Properties.Subject != "s" ||
		got.ApplicationProperties["i"] != int64(1) || got.Header.Priority != 7 || !got.Header.Durable {
		t.Fatalf("changed on the way: %+v", got)
	}
	if err := receiver.AcceptMessage(limited(t), got); err != nil {
		t.Fatal(err)
	}
	b.depth("queues", "q", 0)
}

func TestOutcomes(t *testing.T) {
	b := startBroker(t)
	c := connect(t, b.port, nil)
	send(t, c.sender("queue", "q"), text("x"))
	receiver := c.receiver("q", &amqp.ReceiverOptions{SourceCapabilities: []string{"queue"}})
	if err := receiver.ReleaseMessage(limited(t), receive(t, receiver)); err != nil {
		t.Fatal(err)
	}
	failed := &amqp.ModifyMessageOptions{DeliveryFailed: true}
	message := receive(t, receiver)
	if message.Header != nil && message.Header.DeliveryCount != 0 {
		t.Fatalf("a release was counted: %+v", message.Header)
	}
	if err := receiver.ModifyMessage(limited(t), message, failed); err != nil {
		t.Fatal(err)
	}
	message = receive(t, receiver)
	if message.Header == nil || message.Header.DeliveryCount != 1 {
		t.Fatalf("a failure was not counted: %+v", message.Header)
	}
	reason := &amqp.Error{Condition: "app:bad", Description: "cannot be read"}
	if err := receiver.RejectMessage(limited(t), message, reason); err != nil {
		t.Fatal(err)
	}
	b.depth("queues", "q", 0)
	b.depth("queues", "DLQ", 1)
	letter := receive(t, c.receiver("DLQ", &amqp.ReceiverOptions{SourceCapabilities: []string{"queue"}}))
	if got := fmt.Sprint(letter.Annotations["x-opt-postroad-dl-reason"]); got != "REJECTED" {
		t.Fatalf("reason %q", got)
	}
}

func TestCreditIsHonouredAndDrainUsesItUp(t *testing.T) {
	b := startBroker(t)
	c := connect(t, b.port, nil)
	sender := c.sender("queue", "q")
	for _, value := range []string{"1", "2", "3", "4", "5"} {
		send(t, sender, text(value))
	}
	receiver := c.receiver("q", manual("queue"))
	if err := receiver.IssueCredit(2); err != nil {
		t.Fatal(err)
	}
	accept(t, receiver, "1", "2")
	b.depth("queues", "q", 3)
	if err := receiver.IssueCredit(10); err != nil {
		t.Fatal(err)
	}
	accept(t, receiver, "3", "4", "5")
	if err := receiver.DrainCredit(limited(t), nil); err != nil {
		t.Fatal(err)
	}
	send(t, sender, text("6"))
	b.depth("queues", "q", 1)
	if message := receiver.Prefetched(); message != nil {
		t.Fatalf("a message came without credit: %v", message.Value)
	}
	if err := receiver.IssueCredit(1); err != nil {
		t.Fatal(err)
	}
	accept(t, receiver, "6")
}

func TestADurableSubscriptionCollectsWhileItsClientIsAway(t *testing.T) {
	b := startBroker(t)
	options := func() *amqp.ConnOptions { return &amqp.ConnOptions{ContainerID: "go-cid"} }
	first := connect(t, b.port, options())
	first.receiver("t", durable())
	_ = first.conn.Close()

	publisher := connect(t, b.port, nil).sender("topic", "t")
	for _, value := range []string{"1", "2", "3"} {
		send(t, publisher, text(value))
	}
	again := connect(t, b.port, options())
	receiver := again.receiver("t", durable())
	accept(t, receiver, "1", "2", "3")
	if err := receiver.Close(limited(t)); err != nil {
		t.Fatal(err)
	}
	send(t, publisher, text("4"))
	b.depth("channels", "t", 0)
}

func TestASelectorPassesWhatMatches(t *testing.T) {
	b := startBroker(t)
	c := connect(t, b.port, nil)
	sender := c.sender("queue", "q")
	for _, color := range []string{"red", "blue", "red"} {
		message := text(color)
		message.ApplicationProperties = map[string]any{"color": color}
		send(t, sender, message)
	}
	options := manual("queue")
	options.Filters = []amqp.LinkFilter{amqp.NewSelectorFilter("color = 'red'")}
	receiver := c.receiver("q", options)
	if err := receiver.IssueCredit(10); err != nil {
		t.Fatal(err)
	}
	accept(t, receiver, "red", "red")
	if err := receiver.DrainCredit(limited(t), nil); err != nil {
		t.Fatal(err)
	}
	if message := receiver.Prefetched(); message != nil {
		t.Fatalf("a message passed that does not match: %v", message.Value)
	}
	b.depth("queues", "q", 1)
}

func TestALargeMessageCrossesManyFrames(t *testing.T) {
	b := startBroker(t)
	c := connect(t, b.port, &amqp.ConnOptions{MaxFrameSize: 4096})
	body := make([]byte, 5<<20)
	if _, err := rand.Read(body); err != nil {
		t.Fatal(err)
	}
	send(t, c.sender("queue", "q"), amqp.NewMessage(body))
	message := receive(t, c.receiver("q", &amqp.ReceiverOptions{SourceCapabilities: []string{"queue"}}))
	if !bytes.Equal(message.GetData(), body) {
		t.Fatal("the body changed on the way")
	}
}

func TestRefusedAttachesCarryTheirCondition(t *testing.T) {
	b := startBroker(t)
	c := connect(t, b.port, nil)
	b.rest("PUT", map[string]any{}, "channels", "c")

	_, err := c.session.NewReceiver(limited(t), "c::none", nil)
	if condition(err) != amqp.ErrCondNotFound {
		t.Fatalf("expected %s, got %v", amqp.ErrCondNotFound, err)
	}
	options := manual("queue")
	options.Filters = []amqp.LinkFilter{amqp.NewSelectorFilter("a = = 1")}
	_, err = c.session.NewReceiver(limited(t), "q", options)
	if condition(err) != amqp.ErrCondInvalidField {
		t.Fatalf("expected %s, got %v", amqp.ErrCondInvalidField, err)
	}
	send(t, c.sender("queue", "q"), text("the session lives"))
}

func TestAFullQueueRejectsWithTheReason(t *testing.T) {
	b := startBroker(t)
	b.rest("PUT", map[string]any{"capacity": 1}, "queues", "small")
	sender := connect(t, b.port, nil).sender("queue", "small")
	send(t, sender, text("fits"))
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	err := sender.Send(ctx, text("too many"), nil)
	if err == nil {
		t.Fatal("a full queue took a message")
	}
	// The broker may answer, or give no credit to send.
	if got := condition(err); got != "" && got != amqp.ErrCondResourceLimitExceeded {
		t.Fatalf("expected %s, got %v", amqp.ErrCondResourceLimitExceeded, err)
	}
	b.depth("queues", "small", 1)
}

func TestAJoinCarriesWhatGoPublishes(t *testing.T) {
	b := startBroker(t)
	b.rest("PUT", map[string]any{}, "channels", "c")
	b.rest("PUT", map[string]any{}, "queues", "q")
	b.rest("POST", map[string]any{"source": "c", "destination": "q", "filter": "region = 'EU'"}, "joins")
	c := connect(t, b.port, nil)
	sender := c.sender("topic", "c")
	for _, region := range []string{"EU", "US", "EU"} {
		message := text(region)
		message.ApplicationProperties = map[string]any{"region": region}
		send(t, sender, message)
	}
	accept(t, c.receiver("q", &amqp.ReceiverOptions{SourceCapabilities: []string{"queue"}}), "EU", "EU")
	b.depth("queues", "q", 0)
	proves(t, "JOIN-1", "FIL-1")
}
