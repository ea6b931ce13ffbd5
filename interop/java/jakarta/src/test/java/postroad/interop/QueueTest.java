package postroad.interop;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.InvalidSelectorException;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.ObjectMessage;
import jakarta.jms.Queue;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import jakarta.jms.StreamMessage;
import jakarta.jms.TemporaryQueue;
import jakarta.jms.TextMessage;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;

/** Queues through JMS. */
class QueueTest extends JmsTest {
    @Test
    void everyKindOfMessageComesBackAsItWasSent() throws Exception {
        Session session = session();
        Queue queue = session.createQueue(fresh("q"));
        MessageProducer producer = session.createProducer(queue);
        producer.send(session.createTextMessage("täxt"));
        BytesMessage bytes = session.createBytesMessage();
        bytes.writeBytes(new byte[] {1, 2, 3});
        producer.send(bytes);
        MapMessage map = session.createMapMessage();
        map.setInt("i", 1);
        map.setString("s", "two");
        map.setBytes("b", new byte[] {3});
        producer.send(map);
        producer.send(session.createObjectMessage(new java.util.ArrayList<>(List.of("a", 1))));
        StreamMessage stream = session.createStreamMessage();
        stream.writeLong(5);
        stream.writeString("six");
        producer.send(stream);
        producer.send(session.createMessage());

        MessageConsumer consumer = session.createConsumer(queue);
        assertEquals("täxt", text(consumer));
        BytesMessage gotBytes = (BytesMessage) consumer.receive(PATIENCE_MS);
        byte[] body = new byte[(int) gotBytes.getBodyLength()];
        gotBytes.readBytes(body);
        assertArrayEquals(new byte[] {1, 2, 3}, body);
        MapMessage gotMap = (MapMessage) consumer.receive(PATIENCE_MS);
        assertEquals(1, gotMap.getInt("i"));
        assertEquals("two", gotMap.getString("s"));
        assertArrayEquals(new byte[] {3}, gotMap.getBytes("b"));
        ObjectMessage gotObject = (ObjectMessage) consumer.receive(PATIENCE_MS);
        assertEquals(List.of("a", 1), gotObject.getObject());
        StreamMessage gotStream = (StreamMessage) consumer.receive(PATIENCE_MS);
        assertEquals(5, gotStream.readLong());
        assertEquals("six", gotStream.readString());
        Message gotEmpty = consumer.receive(PATIENCE_MS);
        assertFalse(gotEmpty.getPropertyNames().hasMoreElements()
                && !"JMSXDeliveryCount".equals(gotEmpty.getPropertyNames().nextElement()));
    }

    @Test
    void headersAndPropertiesAreKept() throws Exception {
        Session session = session();
        Queue queue = session.createQueue(fresh("q"));
        TextMessage message = session.createTextMessage("x");
        message.setJMSCorrelationID("c1");
        message.setJMSType("order");
        message.setJMSReplyTo(session.createQueue("back"));
        message.setBooleanProperty("bool", true);
        message.setByteProperty("byte", (byte) 1);
        message.setShortProperty("short", (short) 2);
        message.setIntProperty("int", 3);
        message.setLongProperty("long", 4);
        message.setFloatProperty("float", 5.5f);
        message.setDoubleProperty("double", 6.5);
        message.setStringProperty("string", "seven");
        MessageProducer producer = session.createProducer(queue);
        producer.send(message, DeliveryMode.PERSISTENT, 7, 60_000);

        Message got = session.createConsumer(queue).receive(PATIENCE_MS);
        assertEquals(message.getJMSMessageID(), got.getJMSMessageID());
        assertEquals(message.getJMSTimestamp(), got.getJMSTimestamp());
        assertEquals(message.getJMSExpiration(), got.getJMSExpiration());
        assertEquals("c1", got.getJMSCorrelationID());
        assertEquals("order", got.getJMSType());
        assertEquals("back", ((Queue) got.getJMSReplyTo()).getQueueName());
        assertEquals(DeliveryMode.PERSISTENT, got.getJMSDeliveryMode());
        assertEquals(7, got.getJMSPriority());
        assertFalse(got.getJMSRedelivered());
        assertTrue(got.getBooleanProperty("bool"));
        assertEquals((byte) 1, got.getByteProperty("byte"));
        assertEquals((short) 2, got.getShortProperty("short"));
        assertEquals(3, got.getIntProperty("int"));
        assertEquals(4, got.getLongProperty("long"));
        assertEquals(5.5f, got.getFloatProperty("float"));
        assertEquals(6.5, got.getDoubleProperty("double"));
        assertEquals("seven", got.getStringProperty("string"));
        assertEquals(1, got.getIntProperty("JMSXDeliveryCount"));
    }

    @Test
    void aDelayedMessageComesWhenItIsDue() throws Exception {
        Session session = session();
        Queue queue = session.createQueue(fresh("q"));
        MessageConsumer consumer = session.createConsumer(queue);
        MessageProducer producer = session.createProducer(queue);
        producer.setDeliveryDelay(1_500);
        TextMessage late = session.createTextMessage("late");
        producer.send(late);
        producer.setDeliveryDelay(0);
        producer.send(session.createTextMessage("at once"));
        assertEquals("at once", text(consumer));
        Message got = consumer.receive(PATIENCE_MS);
        assertTrue(System.currentTimeMillis() >= late.getJMSDeliveryTime());
        assertEquals("late", textOf(got));
        assertEquals(late.getJMSDeliveryTime(), got.getJMSDeliveryTime());
        assertFalse(got.getJMSRedelivered());
        Spec.proves("QU-8");
    }

    @Test
    void aDelayedMessageSurvivesACrash() throws Exception {
        Session session = session();
        Queue queue = session.createQueue(fresh("q"));
        MessageProducer producer = session.createProducer(queue);
        producer.setDeliveryDelay(2_000);
        TextMessage late = session.createTextMessage("late");
        producer.send(late);
        broker.crash();
        MessageConsumer consumer = session().createConsumer(queue);
        assertEquals("late", text(consumer));
        assertTrue(System.currentTimeMillis() >= late.getJMSDeliveryTime());
    }

    @Test
    void aPersistentMessageSurvivesACrash() throws Exception {
        Session session = session();
        Queue queue = session.createQueue(fresh("q"));
        send(queue, "1", "2");
        broker.crash();
        Session again = session();
        assertEquals(List.of("1", "2"), texts(again.createConsumer(queue), 2));
    }

    @Test
    void aMessageOfFiveMebibytes() throws Exception {
        Session session = session();
        Queue queue = session.createQueue(fresh("q"));
        byte[] body = new byte[5 << 20];
        new Random(1).nextBytes(body);
        BytesMessage message = session.createBytesMessage();
        message.writeBytes(body);
        session.createProducer(queue).send(message);
        BytesMessage got = (BytesMessage) session.createConsumer(queue).receive(PATIENCE_MS);
        byte[] read = new byte[(int) got.getBodyLength()];
        got.readBytes(read);
        assertArrayEquals(body, read);
    }

    @Test
    void prioritiesComeFirst() throws Exception {
        Session session = session();
        Queue queue = session.createQueue(fresh("q"));
        MessageProducer producer = session.createProducer(queue);
        int[] priorities = {4, 9, 4, 0, 9};
        for (int i = 0; i < priorities.length; i++) {
            producer.send(session.createTextMessage("m" + (i + 1)), DeliveryMode.PERSISTENT, priorities[i], 0);
        }
        List<String> order = List.of("m2", "m5", "m1", "m3", "m4");
        try (QueueBrowser browser = session.createBrowser(queue)) {
            assertEquals(order, Collections.list(enumeration(browser)).stream().map(QueueTest::textOf).toList());
        }
        assertEquals(5, broker.depth("queues", queue.getQueueName()));
        assertEquals(order, texts(session.createConsumer(queue), 5));
        Spec.proves("objects:T16", "QU-7", "QU-2");
    }

    @SuppressWarnings("unchecked")
    private static java.util.Enumeration<Message> enumeration(QueueBrowser browser) throws Exception {
        return browser.getEnumeration();
    }

    private static String textOf(Message message) {
        try {
            return ((TextMessage) message).getText();
        } catch (jakarta.jms.JMSException unreadable) {
            throw new AssertionError(unreadable);
        }
    }

    @Test
    void aBrowserWithASelectorShowsWhatMatches() throws Exception {
        Session session = session();
        Queue queue = session.createQueue(fresh("q"));
        MessageProducer producer = session.createProducer(queue);
        for (int i = 0; i < 4; i++) {
            TextMessage message = session.createTextMessage("m" + i);
            message.setIntProperty("n", i);
            producer.send(message);
        }
        try (QueueBrowser browser = session.createBrowser(queue, "n > 1")) {
            assertEquals(List.of("m2", "m3"),
                    Collections.list(enumeration(browser)).stream().map(QueueTest::textOf).toList());
        }
    }

    @Test
    void selectorsDivideAQueue() throws Exception {
        Session session = session();
        Queue queue = session.createQueue(fresh("q"));
        MessageProducer producer = session.createProducer(queue);
        for (String color : List.of("red", "blue", "red")) {
            TextMessage message = session.createTextMessage(color);
            message.setStringProperty("color", color);
            producer.send(message);
        }
        MessageConsumer red = session.createConsumer(queue, "color = 'red' AND JMSPriority = 4");
        assertEquals(List.of("red", "red"), texts(red, 2));
        assertTrue(empty(red));
        assertEquals("blue", text(session.createConsumer(queue)));
        assertThrows(InvalidSelectorException.class, () -> session.createConsumer(queue, "a = = 1"));
        Spec.proves("QU-12", "ERR-7");
    }

    @Test
    void expiredMessagesAreNotDelivered() throws Exception {
        Session session = session();
        Queue queue = session.createQueue(fresh("q"));
        MessageProducer producer = session.createProducer(queue);
        producer.setTimeToLive(200);
        producer.send(session.createTextMessage("short"));
        Thread.sleep(400);
        producer.setTimeToLive(0);
        producer.send(session.createTextMessage("long"));
        MessageConsumer consumer = session.createConsumer(queue);
        assertEquals("long", text(consumer));
        assertTrue(empty(consumer));
    }

    @Test
    void clientAcknowledgeFinishesAllThatWasDelivered() throws Exception {
        Session session = session(Session.CLIENT_ACKNOWLEDGE);
        Queue queue = session.createQueue(fresh("q"));
        send(queue, "1", "2", "3");
        MessageConsumer consumer = session.createConsumer(queue);
        text(consumer);
        Message second = consumer.receive(PATIENCE_MS);
        second.acknowledge();
        Broker.eventually(1, () -> broker.depth("queues", queueName(queue)));
        assertEquals("3", text(consumer));
        session.close();
        Message again = session().createConsumer(queue).receive(PATIENCE_MS);
        assertEquals("3", textOf(again));
        assertTrue(again.getJMSRedelivered());
        Broker.eventually(0, () -> broker.depth("queues", queueName(queue)));
        Spec.proves("AK-1", "AM-12", "AM-14");
    }

    private static String queueName(Queue queue) {
        try {
            return queue.getQueueName();
        } catch (jakarta.jms.JMSException unnamed) {
            throw new AssertionError(unnamed);
        }
    }

    @Test
    void recoverDeliversAgainInOrderAndFlagged() throws Exception {
        Session session = session(Session.CLIENT_ACKNOWLEDGE);
        Queue queue = session.createQueue(fresh("q"));
        send(queue, "1", "2", "3");
        MessageConsumer consumer = session.createConsumer(queue);
        assertEquals(List.of("1", "2"), texts(consumer, 2));
        session.recover();
        for (String expected : List.of("1", "2")) {
            Message again = consumer.receive(PATIENCE_MS);
            assertEquals(expected, textOf(again));
            assertTrue(again.getJMSRedelivered());
            assertEquals(2, again.getIntProperty("JMSXDeliveryCount"));
        }
        Message last = consumer.receive(PATIENCE_MS);
        assertEquals("3", textOf(last));
        last.acknowledge();
        Broker.eventually(0, () -> broker.depth("queues", queueName(queue)));
    }

    @Test
    void whatOneConsumerLeavesGoesToTheOther() throws Exception {
        Session first = session(Session.CLIENT_ACKNOWLEDGE);
        Queue queue = first.createQueue(fresh("q"));
        send(queue, "1", "2", "3");
        MessageConsumer consumer = first.createConsumer(queue);
        assertEquals("1", text(consumer));
        consumer.close();
        first.close();
        MessageConsumer second = session().createConsumer(queue);
        Message again = second.receive(PATIENCE_MS);
        assertEquals("1", textOf(again));
        assertTrue(again.getJMSRedelivered());
        Message prefetched = second.receive(PATIENCE_MS);
        assertEquals("2", textOf(prefetched));
        assertFalse(prefetched.getJMSRedelivered());
    }

    @Test
    void temporaryQueuesCarryReplies() throws Exception {
        Session service = session();
        Queue requests = service.createQueue(fresh("requests"));
        MessageConsumer incoming = service.createConsumer(requests);
        MessageProducer anonymous = service.createProducer(null);
        incoming.setMessageListener(request -> {
            try {
                TextMessage reply = service.createTextMessage("re: " + textOf(request));
                reply.setJMSCorrelationID(request.getJMSMessageID());
                anonymous.send(request.getJMSReplyTo(), reply);
            } catch (jakarta.jms.JMSException failed) {
                throw new AssertionError(failed);
            }
        });

        Session client = session();
        TemporaryQueue replies = client.createTemporaryQueue();
        MessageConsumer answers = client.createConsumer(replies);
        TextMessage question = client.createTextMessage("question");
        question.setJMSReplyTo(replies);
        client.createProducer(requests).send(question);
        Message answer = answers.receive(PATIENCE_MS);
        assertEquals("re: question", textOf(answer));
        assertEquals(question.getJMSMessageID(), answer.getJMSCorrelationID());
        answers.close();
        replies.delete();
    }

    @Test
    void anAnonymousProducerSendsAnywhere() throws Exception {
        Session session = session();
        MessageProducer producer = session.createProducer(null);
        for (String name : List.of(fresh("q"), fresh("q"))) {
            Queue queue = session.createQueue(name);
            producer.send(queue, session.createTextMessage(name));
            assertEquals(name, text(session.createConsumer(queue)));
        }
    }

    @Test
    void receiveWithoutWaitingFindsWhatIsThere() throws Exception {
        Session session = connect(null, "?jms.prefetchPolicy.all=0").createSession(Session.AUTO_ACKNOWLEDGE);
        Queue queue = session.createQueue(fresh("q"));
        MessageConsumer consumer = session.createConsumer(queue);
        assertNull(consumer.receiveNoWait());
        send(queue, "1", "2");
        assertEquals("1", ((TextMessage) consumer.receiveNoWait()).getText());
        assertEquals("2", ((TextMessage) consumer.receiveNoWait()).getText());
        assertNull(consumer.receiveNoWait());
        Spec.proves("AM-15");
    }

    @Test
    void deadLettersSayWhyInProperties() throws Exception {
        int individualAcknowledge = 101;
        int rejected = 2;
        Session session = session(individualAcknowledge);
        Queue queue = session.createQueue(fresh("q"));
        send(queue, "bad");
        Message message = session.createConsumer(queue).receive(PATIENCE_MS);
        message.setIntProperty("JMS_AMQP_ACK_TYPE", rejected);
        message.acknowledge();
        String ours = "postroad_dl_dest = '" + queueName(queue) + "' AND postroad_dl_count = 1";
        Message letter = session().createConsumer(session.createQueue("DLQ"), ours).receive(PATIENCE_MS);
        assertEquals("bad", textOf(letter));
        assertEquals("REJECTED", letter.getStringProperty("postroad_dl_reason"));
        assertEquals(1L, letter.getLongProperty("postroad_dl_event_id"));
        assertEquals(1, letter.getIntProperty("postroad_dl_count"));
        assertTrue(System.currentTimeMillis() >= letter.getLongProperty("postroad_dl_time"));
    }

    @Test
    void fastAndSettledModesLoseNothingOnTheWay() throws Exception {
        Connection connection = connect(null, "?jms.presettlePolicy.presettleAll=true");
        Session session = connection.createSession(Session.AUTO_ACKNOWLEDGE);
        Queue queue = session.createQueue(fresh("q"));
        MessageProducer producer = session.createProducer(queue);
        for (int i = 0; i < 100; i++) {
            producer.send(session.createTextMessage("m" + i));
        }
        MessageConsumer consumer = session.createConsumer(queue);
        for (int i = 0; i < 100; i++) {
            assertEquals("m" + i, text(consumer));
        }
    }

    @Test
    void aJoinCarriesWhatJmsPublishes() throws Exception {
        String source = fresh("c");
        String destination = fresh("q");
        broker.put("channels", source, "{}");
        broker.put("queues", destination, "{}");
        broker.join("{\"source\":\"" + source + "\",\"destination\":\"" + destination
                + "\",\"filter\":\"region = 'EU' AND amount > 10\"}");
        Session session = session();
        MessageProducer producer = session.createProducer(session.createTopic(source));
        for (int amount : new int[] {5, 50}) {
            TextMessage message = session.createTextMessage("eu " + amount);
            message.setStringProperty("region", "EU");
            message.setIntProperty("amount", amount);
            producer.send(message);
        }
        MessageConsumer consumer = session.createConsumer(session.createQueue(destination));
        assertEquals("eu 50", text(consumer));
        assertTrue(empty(consumer));
        Spec.proves("JOIN-1", "FIL-1");
    }
}
