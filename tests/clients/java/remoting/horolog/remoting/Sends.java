package horolog.remoting;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageQueue;

/** Sends in every way a producer has, and recalls. */
final class Sends {
    private final Map<String, DefaultMQProducer> producers;

    Sends(Map<String, DefaultMQProducer> producers) {
        this.producers = producers;
    }

    Object send(JsonObject asked) throws Exception {
        DefaultMQProducer producer = producers.get(Driver.text(asked, "by"));
        String how = asked.has("how") ? Driver.text(asked, "how") : "sync";
        List<Message> messages = new ArrayList<>();
        for (JsonElement each : asked.getAsJsonArray("messages")) {
            messages.add(message(Driver.text(asked, "topic"), each.getAsJsonObject()));
        }
        List<Object> gave = new ArrayList<>();
        switch (how) {
            case "batch":
                gave.add(receipt(producer.send(messages)));
                break;
            case "oneway":
                for (Message message : messages) {
                    producer.sendOneway(message);
                }
                break;
            case "async":
                List<CompletableFuture<SendResult>> sent = new ArrayList<>();
                for (Message message : messages) {
                    sent.add(later(producer, message));
                }
                for (CompletableFuture<SendResult> each : sent) {
                    gave.add(receipt(each.get()));
                }
                break;
            case "again": // one object, as often as asked for
                for (int i = 0; i < asked.get("times").getAsInt(); i++) {
                    gave.add(receipt(producer.send(messages.get(0))));
                }
                break;
            case "queue": // the queue is chosen by the caller
                for (Message message : messages) {
                    gave.add(receipt(producer.send(message, (queues, told, argument) -> {
                        for (MessageQueue queue : queues) {
                            if (queue.getQueueId() == (Integer) argument) {
                                return queue;
                            }
                        }
                        throw new IllegalArgumentException("no queue " + argument);
                    }, asked.get("queue").getAsInt())));
                }
                break;
            default:
                for (Message message : messages) {
                    gave.add(receipt(producer.send(message)));
                }
        }
        return gave;
    }

    private static CompletableFuture<SendResult> later(DefaultMQProducer producer, Message message) throws Exception {
        CompletableFuture<SendResult> result = new CompletableFuture<>();
        producer.send(message, new SendCallback() {
            @Override
            public void onSuccess(SendResult sent) {
                result.complete(sent);
            }

            @Override
            public void onException(Throwable error) {
                result.completeExceptionally(error);
            }
        });
        return result;
    }

    private static Map<String, Object> receipt(SendResult sent) throws Exception {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("status", sent.getSendStatus().name());
        fields.put("id", sent.getMsgId());
        fields.put("offset_id", sent.getOffsetMsgId());
        fields.put("queue", sent.getMessageQueue().getQueueId());
        fields.put("offset", sent.getQueueOffset());
        try {
            fields.put("handle", SendResult.class.getMethod("getRecallHandle").invoke(sent));
        } catch (NoSuchMethodException older) {
            fields.put("handle", null);
        }
        return fields;
    }

    private static Message message(String topic, JsonObject told) throws Exception {
        String body = Driver.text(told, "body");
        if (told.has("times")) {
            body = body.repeat(told.get("times").getAsInt());
        }
        Message made = new Message(topic, body.getBytes(StandardCharsets.UTF_8));
        if (told.has("tag")) {
            made.setTags(Driver.text(told, "tag"));
        }
        if (told.has("keys")) {
            List<String> keys = new ArrayList<>();
            told.getAsJsonArray("keys").forEach(key -> keys.add(key.getAsString()));
            made.setKeys(keys);
        }
        if (told.has("properties")) {
            for (Map.Entry<String, JsonElement> each : told.getAsJsonObject("properties").entrySet()) {
                made.putUserProperty(each.getKey(), each.getValue().getAsString());
            }
        }
        if (told.has("reserved")) { // what only newer clients have a method for
            for (Map.Entry<String, JsonElement> each : told.getAsJsonObject("reserved").entrySet()) {
                MessageAccessor.putProperty(made, each.getKey(), each.getValue().getAsString());
            }
        }
        if (told.has("level")) {
            made.setDelayTimeLevel(told.get("level").getAsInt());
        }
        for (String setter : new String[] {"setDelayTimeMs", "setDelayTimeSec", "setDeliverTimeMs"}) {
            if (told.has(setter)) {
                Message.class.getMethod(setter, long.class).invoke(made, told.get(setter).getAsLong());
            }
        }
        return made;
    }

    Object recall(JsonObject asked) throws Exception {
        return DefaultMQProducer.class.getMethod("recallMessage", String.class, String.class).invoke(
            producers.get(Driver.text(asked, "by")), Driver.text(asked, "topic"), Driver.text(asked, "handle"));
    }
}
