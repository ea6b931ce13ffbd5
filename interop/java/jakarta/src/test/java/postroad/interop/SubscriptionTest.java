package postroad.interop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Connection;
import jakarta.jms.InvalidClientIDException;
import jakarta.jms.InvalidDestinationException;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Topics and durable subscriptions through JMS (named-objects T11, as far as nothing is shared or transacted). */
class SubscriptionTest extends JmsTest {
    @Test
    void aDurableSubscriptionCollectsWhileItIsClosed() throws Exception {
        String client = fresh("cid");
        Connection connection = connect(client);
        Session session = connection.createSession(Session.AUTO_ACKNOWLEDGE);
        Topic topic = session.createTopic(fresh("t"));
        session.createDurableConsumer(topic, "S").close();
        publish(topic, "1", "2", "3");
        MessageConsumer again = session.createDurableConsumer(topic, "S");
        for (String expected : List.of("1", "2", "3")) {
            Message message = again.receive(PATIENCE_MS);
            assertEquals(expected, ((TextMessage) message).getText());
            assertFalse(message.getJMSRedelivered());
        }
        assertTrue(empty(again));
        Spec.proves("AM-3", "AM-5");
    }

    @Test
    void aDurableSubscriptionIsNotPastADelayedMessage() throws Exception {
        Session session = connect(fresh("cid")).createSession(Session.AUTO_ACKNOWLEDGE);
        Topic topic = session.createTopic(fresh("t"));
        MessageConsumer consumer = session.createDurableConsumer(topic, "S");
        MessageProducer producer = session.createProducer(topic);
        producer.setDeliveryDelay(1_500);
        producer.send(session.createTextMessage("m1"));
        producer.setDeliveryDelay(0);
        producer.send(session.createTextMessage("m2"));
        assertEquals("m2", text(consumer));
        consumer.close();
        assertEquals("m1", text(session.createDurableConsumer(topic, "S")));
        Spec.proves("objects:T17");
    }

    @Test
    void itContinuesOnAnotherConnectionAfterACrashOfTheBroker() throws Exception {
        String client = fresh("cid");
        Connection connection = connect(client);
        Session session = connection.createSession(Session.AUTO_ACKNOWLEDGE);
        Topic topic = session.createTopic(fresh("t"));
        session.createDurableSubscriber(topic, "S");
        connection.close();
        publish(topic, "1");
        broker.crash();
        publish(topic, "2");
        Session later = connect(client).createSession(Session.AUTO_ACKNOWLEDGE);
        assertEquals(List.of("1", "2"), texts(later.createDurableSubscriber(topic, "S"), 2));
    }

    @Test
    void unsubscribeDeletesAndUnknownNamesAreInvalid() throws Exception {
        Session session = connect(fresh("cid")).createSession(Session.AUTO_ACKNOWLEDGE);
        Topic topic = session.createTopic(fresh("t"));
        session.createDurableConsumer(topic, "S").close();
        publish(topic, "1");
        session.unsubscribe("S");
        Broker.eventually(0, () -> broker.depth("channels", topicName(topic)));
        assertThrows(InvalidDestinationException.class, () -> session.unsubscribe("S"));
        assertThrows(InvalidDestinationException.class, () -> session.unsubscribe("never"));
        assertTrue(empty(session.createDurableConsumer(topic, "S")));
    }

    private static String topicName(Topic topic) {
        try {
            return topic.getTopicName();
        } catch (JMSException unnamed) {
            throw new AssertionError(unnamed);
        }
    }

    @Test
    void unsubscribeWhileActiveIsRefused() throws Exception {
        Session session = connect(fresh("cid")).createSession(Session.AUTO_ACKNOWLEDGE);
        Topic topic = session.createTopic(fresh("t"));
        MessageConsumer consumer = session.createDurableConsumer(topic, "S");
        assertThrows(JMSException.class, () -> session.unsubscribe("S"));
        publish(topic, "1");
        assertEquals("1", text(consumer));
    }

    @Test
    void anotherSelectorStartsAnew() throws Exception {
        Session session = connect(fresh("cid")).createSession(Session.AUTO_ACKNOWLEDGE);
        Topic topic = session.createTopic(fresh("t"));
        session.createDurableConsumer(topic, "S").close();
        publish(topic, "1", "2", "3", "4", "5");
        MessageConsumer again = session.createDurableConsumer(topic, "S", "a=1", false);
        assertTrue(empty(again));
        MessageProducer producer = session.createProducer(topic);
        for (int a = 1; a <= 2; a++) {
            TextMessage message = session.createTextMessage("a=" + a);
            message.setIntProperty("a", a);
            producer.send(message);
        }
        assertEquals("a=1", text(again));
        assertTrue(empty(again));
        Spec.proves("AM-11");
    }

    @Test
    void noLocalLeavesOutTheOwnConnection() throws Exception {
        Session session = connect(fresh("cid")).createSession(Session.AUTO_ACKNOWLEDGE);
        Topic topic = session.createTopic(fresh("t"));
        MessageConsumer consumer = session.createDurableConsumer(topic, "S", null, true);
        MessageProducer producer = session.createProducer(topic);
        producer.send(session.createTextMessage("mine"));
        producer.send(session.createTextMessage("mine too"));
        publish(topic, "theirs");
        assertEquals("theirs", text(consumer));
        assertTrue(empty(consumer));
        Spec.proves("AM-10");
    }

    @Test
    void aClientIdIsUsedByOneConnection() throws Exception {
        String client = fresh("cid");
        Connection first = connect(client);
        assertThrows(InvalidClientIDException.class, () -> connect(client));
        first.close();
        connect(client);
        Spec.proves("AM-2");
    }

    @Test
    void oneNameOnTwoClientIdsIsTwoSubscriptions() throws Exception {
        Session one = connect(fresh("cid")).createSession(Session.AUTO_ACKNOWLEDGE);
        Session other = connect(fresh("cid")).createSession(Session.AUTO_ACKNOWLEDGE);
        Topic topic = one.createTopic(fresh("t"));
        MessageConsumer first = one.createDurableConsumer(topic, "S");
        MessageConsumer second = other.createDurableConsumer(topic, "S");
        publish(topic, "1");
        assertEquals("1", text(first));
        assertEquals("1", text(second));
    }

    @Test
    void aSecondConsumerOfOneSubscriptionIsRefused() throws Exception {
        Session session = connect(fresh("cid")).createSession(Session.AUTO_ACKNOWLEDGE);
        Topic topic = session.createTopic(fresh("t"));
        session.createDurableConsumer(topic, "S");
        assertThrows(JMSException.class, () -> session.createDurableConsumer(topic, "S"));
    }

    @Test
    void plainSubscribersEachGetEverythingFromNowOn() throws Exception {
        Session session = session();
        Topic topic = session.createTopic(fresh("t"));
        MessageConsumer first = session.createConsumer(topic);
        MessageConsumer second = session.createConsumer(topic, "JMSPriority > 0");
        publish(topic, "1", "2");
        assertEquals(List.of("1", "2"), texts(first, 2));
        assertEquals(List.of("1", "2"), texts(second, 2));
        assertTrue(empty(session.createConsumer(topic)));
    }

    @Test
    void unacknowledgedEventsComeBackToADurable() throws Exception {
        String client = fresh("cid");
        Connection connection = connect(client);
        Session session = connection.createSession(Session.CLIENT_ACKNOWLEDGE);
        Topic topic = session.createTopic(fresh("t"));
        MessageConsumer consumer = session.createDurableConsumer(topic, "S");
        publish(topic, "1", "2");
        assertEquals("1", text(consumer));
        connection.close();
        Session later = connect(client).createSession(Session.AUTO_ACKNOWLEDGE);
        MessageConsumer again = later.createDurableConsumer(topic, "S");
        Message first = again.receive(PATIENCE_MS);
        assertEquals("1", ((TextMessage) first).getText());
        assertTrue(first.getJMSRedelivered());
        assertEquals("2", text(again));
        Spec.proves("AM-14");
    }
}
