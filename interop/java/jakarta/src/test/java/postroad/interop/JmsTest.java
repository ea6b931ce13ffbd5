package postroad.interop;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;

/** What the test classes share: one broker for each class, connections closed after each test, names of their own. */
abstract class JmsTest {
    static final long PATIENCE_MS = 10_000;
    static final long QUIET_MS = 300;

    static Broker broker;
    private static int names;
    private final Deque<Connection> connections = new ArrayDeque<>();

    @BeforeAll
    static void startBroker() throws Exception {
        broker = new Broker();
    }

    @AfterAll
    static void endBroker() throws Exception {
        broker.end();
    }

    @AfterEach
    void closeConnections() {
        while (!connections.isEmpty()) {
            try {
                connections.pop().close();
            } catch (JMSException alreadyBroken) {
                // A test may have broken its connection on purpose.
            }
        }
    }

    /** A name that no other test uses. */
    static String fresh(String prefix) {
        names += 1;
        return prefix + "-" + names;
    }

    /** A started connection; `clientId` may be null. */
    Connection connect(String clientId) throws JMSException {
        return connect(clientId, "");
    }

    Connection connect(String clientId, String options) throws JMSException {
        Connection connection = new JmsConnectionFactory(broker.address() + options).createConnection();
        connections.push(connection);
        if (clientId != null) {
            connection.setClientID(clientId);
        }
        connection.start();
        return connection;
    }

    Session session() throws JMSException {
        return session(Session.AUTO_ACKNOWLEDGE);
    }

    Session session(int mode) throws JMSException {
        return connect(null).createSession(mode);
    }

    void send(Queue queue, String... texts) throws JMSException {
        Session session = session();
        try (MessageProducer producer = session.createProducer(queue)) {
            for (String text : texts) {
                producer.send(session.createTextMessage(text));
            }
        }
    }

    void publish(Topic topic, String... texts) throws JMSException {
        Session session = session();
        try (MessageProducer producer = session.createProducer(topic)) {
            for (String text : texts) {
                producer.send(session.createTextMessage(text));
            }
        }
    }

    /** The next message's text. */
    static String text(MessageConsumer consumer) throws JMSException {
        Message message = consumer.receive(PATIENCE_MS);
        if (message == null) {
            throw new AssertionError("no message");
        }
        return ((TextMessage) message).getText();
    }

    static List<String> texts(MessageConsumer consumer, int count) throws JMSException {
        List<String> texts = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            texts.add(text(consumer));
        }
        return texts;
    }

    /** True if nothing is there for the consumer: Qpid JMS drains its link to know. */
    static boolean empty(MessageConsumer consumer) throws JMSException {
        return consumer.receive(QUIET_MS) == null;
    }
}
