package horolog.remoting;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageExt;

/** A message as a driver tells it. */
final class Told {
    private Told() {
    }

    static Map<String, Object> of(MessageExt message) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("body", new String(message.getBody(), StandardCharsets.UTF_8));
        fields.put("topic", message.getTopic());
        fields.put("tag", message.getTags());
        fields.put("keys", message.getKeys() == null ? new String[0] : message.getKeys().split(" "));
        fields.put("id", message.getMsgId());
        fields.put("unique", message.getProperty("UNIQ_KEY"));
        fields.put("queue", message.getQueueId());
        fields.put("offset", message.getQueueOffset());
        fields.put("retries", message.getReconsumeTimes());
        fields.put("level", message.getDelayTimeLevel());
        fields.put("born_ms", message.getBornTimestamp());
        fields.put("store_ms", message.getStoreTimestamp());
        fields.put("properties", message.getProperties());
        fields.put("thread", Thread.currentThread().getName());
        fields.put("length", message.getBody().length);
        fields.put("sum", Arrays.hashCode(message.getBody()));
        return fields;
    }
}
