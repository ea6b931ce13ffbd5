// Package interop runs the broker under Azure's go-amqp client.
package interop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

const patience = 30 * time.Second

// broker is one broker process of its own, with free ports and a temporary folder, ended by its process id.
type broker struct {
	t        *testing.T
	port     int
	httpPort int
	config   string
	data     string
	log      string
	process  *exec.Cmd
}

// startBroker starts a broker that makes queues and channels by first use; it is ended with the test.
func startBroker(t *testing.T) *broker {
	t.Helper()
	folder := t.TempDir()
	ports := freePorts(t, 2)
	b := &broker{
		t:        t,
		port:     ports[0],
		httpPort: ports[1],
		config:   filepath.Join(folder, "broker.toml"),
		data:     filepath.Join(folder, "data"),
		log:      filepath.Join(folder, "broker.log"),
	}
	text := fmt.Sprintf("[broker]\nname = \"A\"\n[auto_create]\nenabled = true\n"+
		"[[listener]]\nprotocol = \"amqp\"\naddress = \"127.0.0.1:%d\"\n"+
		"[[listener]]\nprotocol = \"http\"\naddress = \"127.0.0.1:%d\"\n", b.port, b.httpPort)
	if err := os.WriteFile(b.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	b.start()
	t.Cleanup(b.kill)
	return b
}

func (b *broker) start() {
	b.t.Helper()
	log, err := os.OpenFile(b.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		b.t.Fatal(err)
	}
	defer log.Close()
	b.process = exec.Command(binary(b.t), "serve", "--config", b.config, "--data-dir", b.data)
	b.process.Stdout, b.process.Stderr = log, log
	if err := b.process.Start(); err != nil {
		b.t.Fatal(err)
	}
	deadline := time.Now().Add(patience)
	for !b.ready() {
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(b.log)
			b.t.Fatalf("the broker did not start:\n%s", text)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (b *broker) ready() bool {
	answer, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/readyz", b.httpPort))
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

// kill ends the broker as a power cut would.
func (b *broker) kill() {
	if b.process != nil {
		_ = b.process.Process.Kill()
		_ = b.process.Wait()
		b.process = nil
	}
}

func (b *broker) restart() {
	b.kill()
	b.start()
}

// rest makes one REST call that has to succeed; the path's segments are encoded here.
func (b *broker) rest(method string, body any, segments ...string) map[string]any {
	b.t.Helper()
	var payload io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			b.t.Fatal(err)
		}
		payload = bytes.NewReader(encoded)
	}
	for i, segment := range segments {
		segments[i] = url.PathEscape(segment)
	}
	path := strings.Join(segments, "/")
	request, err := http.NewRequest(method, fmt.Sprintf("http://127.0.0.1:%d/api/v1/%s", b.httpPort, path), payload)
	if err != nil {
		b.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		b.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	if answer.StatusCode >= 300 {
		b.t.Fatalf("%s %s: %d %s", method, path, answer.StatusCode, text)
	}
	result := map[string]any{}
	if len(text) > 0 {
		if err := json.Unmarshal(text, &result); err != nil {
			b.t.Fatal(err)
		}
	}
	return result
}

// depth waits until a queue or channel holds so many messages.
func (b *broker) depth(kind, name string, expected int) {
	b.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		seen := int(b.rest("GET", nil, kind, name)["depth"].(float64))
		if seen == expected {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("%s %s: expected depth %d, last saw %d", kind, name, expected, seen)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func binary(t *testing.T) string {
	if path := os.Getenv("POSTROAD_BIN"); path != "" {
		return path
	}
	path, err := filepath.Abs("../../target/debug/postroad")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// freePorts holds all of them at once, so that none is given twice.
func freePorts(t *testing.T, count int) []int {
	var ports []int
	for range count {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

var idShape = regexp.MustCompile(`^([A-Z]{2,6}-[A-Z]?\d{1,4}|(joins|objects|addressing|network|topics):[A-Z]?\d{1,4}(\.\d{1,4})*)$`)

// proves records that the calling test has proved the ids; its last statement.
func proves(t *testing.T, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if !idShape.MatchString(id) {
			t.Fatalf("not the id of a requirement or acceptance row: %q", id)
		}
	}
	path := os.Getenv("POSTROAD_SPEC_IDS")
	if path == "" || t.Failed() {
		return
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString(strings.Join(ids, "\n") + "\n"); err != nil {
		t.Fatal(err)
	}
}
