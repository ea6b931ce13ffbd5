package postroad.interop;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.ServerSocket;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Comparator;
import java.util.function.IntSupplier;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/** One broker process of its own: free ports, a temporary folder, ended by its process id. */
final class Broker {
    private static final Duration PATIENCE = Duration.ofSeconds(30);
    private static final Pattern DEPTH = Pattern.compile("\"depth\"\\s*:\\s*(\\d+)");

    private final HttpClient http = HttpClient.newHttpClient();
    private final int port;
    private final int httpPort;
    private final Path folder;
    private Process process;

    /** Starts a broker that makes queues and channels by first use. */
    Broker() throws IOException, InterruptedException {
        folder = Files.createTempDirectory("postroad-java-");
        try (ServerSocket first = new ServerSocket(0); ServerSocket second = new ServerSocket(0)) {
            port = first.getLocalPort();
            httpPort = second.getLocalPort();
        }
        Files.writeString(folder.resolve("broker.toml"), """
                [broker]
                name = "A"
                dlq_expose_properties = true
                [auto_create]
                enabled = true
                [[listener]]
                protocol = "amqp"
                address = "127.0.0.1:%d"
                [[listener]]
                protocol = "http"
                address = "127.0.0.1:%d"
                """.formatted(port, httpPort));
        start();
    }

    private void start() throws IOException, InterruptedException {
        Path log = folder.resolve("broker.log");
        process = new ProcessBuilder(binary(), "serve", "--config", folder.resolve("broker.toml").toString(),
                        "--data-dir", folder.resolve("data").toString())
                .redirectErrorStream(true)
                .redirectOutput(ProcessBuilder.Redirect.appendTo(log.toFile()))
                .start();
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (!ready()) {
            if (!process.isAlive() || System.nanoTime() > deadline) {
                throw new IllegalStateException("the broker did not start:\n" + Files.readString(log));
            }
            Thread.sleep(10);
        }
    }

    private boolean ready() throws InterruptedException {
        try {
            return call("GET", "/readyz", null).statusCode() == 200;
        } catch (UncheckedIOException refused) {
            return false;
        }
    }

    /** Ends the broker as a power cut would, and starts it again on the same data. */
    void crash() throws IOException, InterruptedException {
        process.destroyForcibly().waitFor();
        start();
    }

    /** The client's connection address, without options. */
    String address() {
        return "amqp://127.0.0.1:" + port;
    }

    /** Defines or changes something by REST; `kind` and `name` are a path below the API. */
    void put(String kind, String name, String json) throws InterruptedException {
        must(call("PUT", path(kind, name), json));
    }

    /** Makes a join. */
    void join(String json) throws InterruptedException {
        must(call("POST", "/api/v1/joins", json));
    }

    /** How many messages a queue or events a channel holds. */
    int depth(String kind, String name) {
        try {
            String body = must(call("GET", path(kind, name), null));
            Matcher found = DEPTH.matcher(body);
            if (!found.find()) {
                throw new AssertionError("no depth in " + body);
            }
            return Integer.parseInt(found.group(1));
        } catch (InterruptedException interrupted) {
            throw new AssertionError(interrupted);
        }
    }

    /** Waits until a number is as expected. */
    static void eventually(int expected, IntSupplier look) throws InterruptedException {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        int seen;
        while ((seen = look.getAsInt()) != expected) {
            if (System.nanoTime() > deadline) {
                throw new AssertionError("expected " + expected + ", last saw " + seen);
            }
            Thread.sleep(10);
        }
    }

    /** Ends the broker and removes its folder. */
    void end() throws IOException, InterruptedException {
        process.destroyForcibly().waitFor();
        try (Stream<Path> files = Files.walk(folder)) {
            for (Path file : files.sorted(Comparator.reverseOrder()).toList()) {
                Files.delete(file);
            }
        }
    }

    private HttpResponse<String> call(String method, String path, String json) throws InterruptedException {
        HttpRequest.BodyPublisher body = json == null
                ? HttpRequest.BodyPublishers.noBody()
                : HttpRequest.BodyPublishers.ofString(json);
        HttpRequest request = HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + httpPort + path))
                .header("Content-Type", "application/json")
                .timeout(PATIENCE)
                .method(method, body)
                .build();
        try {
            return http.send(request, HttpResponse.BodyHandlers.ofString());
        } catch (IOException refused) {
            throw new UncheckedIOException(refused);
        }
    }

    private static String must(HttpResponse<String> answer) {
        if (answer.statusCode() >= 300) {
            throw new AssertionError(answer.request().uri() + ": " + answer.statusCode() + " " + answer.body());
        }
        return answer.body();
    }

    private static String path(String kind, String name) {
        return "/api/v1/" + kind + "/" + URLEncoder.encode(name, StandardCharsets.UTF_8).replace("+", "%20");
    }

    private static String binary() {
        String given = System.getenv("POSTROAD_BIN");
        return given != null ? given : Path.of("../../../target/debug/postroad").toAbsolutePath().toString();
    }
}
