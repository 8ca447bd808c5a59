package horolog.remoting;

import com.google.gson.JsonObject;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Requests of producers, and replies of consumers: "ask NAME …" is replied to by the producer of that name. */
final class Requests {
    private final Map<String, DefaultMQProducer> producers;

    Requests(Map<String, DefaultMQProducer> producers) {
        this.producers = producers;
    }

    /** Wait for the reply; its body. */
    Object request(JsonObject asked) throws Exception {
        byte[] body = Driver.text(asked, "body").getBytes(StandardCharsets.UTF_8);
        long waitMs = asked.has("wait_ms") ? asked.get("wait_ms").getAsLong() : 20_000;
        Message reply = producers.get(Driver.text(asked, "by")).request(
            new Message(Driver.text(asked, "topic"), body), waitMs);
        return new String(reply.getBody(), StandardCharsets.UTF_8);
    }

    /** Whether the reply has arrived. */
    boolean reply(String[] words, MessageExt message) {
        try {
            byte[] body = ("reply to " + words[2]).repeat(1_000).getBytes(StandardCharsets.UTF_8); // it is compressed
            producers.get(words[1]).send(MessageUtil.createReplyMessage(message, body));
            return true;
        } catch (Exception refused) {
            return false;
        }
    }
}
