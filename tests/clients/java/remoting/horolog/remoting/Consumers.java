package horolog.remoting;

import static horolog.remoting.Driver.text;

import com.google.gson.JsonObject;
import horolog.lines.Lines;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Push, lite pull and pull consumers. */
final class Consumers {
    private final Lines lines;
    private final Requests requests;
    private final Map<String, DefaultMQPushConsumer> pushed = new ConcurrentHashMap<>();
    private final Map<String, DefaultLitePullConsumer> lites = new ConcurrentHashMap<>();
    private final Map<String, DefaultMQPullConsumer> pulls = new ConcurrentHashMap<>();
    private final Map<MessageQueue, Long> read = new ConcurrentHashMap<>();

    Consumers(Lines lines, Requests requests) {
        this.lines = lines;
        this.requests = requests;
    }

    /** A push consumer that fails each message whose body begins with "fail N" in its first N deliveries. */
    Object push(JsonObject asked) throws Exception {
        String name = text(asked, "name");
        DefaultMQPushConsumer made = new DefaultMQPushConsumer(
            text(asked, "group"), Driver.hook(asked), new AllocateMessageQueueAveragely());
        Driver.configure(made, asked);
        made.setConsumeThreadMin(4);
        made.setConsumeThreadMax(4);
        if (asked.has("sql")) {
            made.subscribe(text(asked, "topic"), MessageSelector.bySql(text(asked, "filter")));
        } else {
            made.subscribe(text(asked, "topic"), text(asked, "filter"));
        }
        if (asked.has("from")) {
            made.setConsumeFromWhere(ConsumeFromWhere.valueOf(text(asked, "from")));
        }
        if (asked.has("model")) { // an enum whose package has moved
            for (Method method : DefaultMQPushConsumer.class.getMethods()) {
                if (method.getName().equals("setMessageModel")) {
                    for (Object model : method.getParameterTypes()[0].getEnumConstants()) {
                        if (model.toString().equals(text(asked, "model"))) {
                            method.invoke(made, model);
                        }
                    }
                }
            }
        }
        if (asked.has("retries")) {
            made.setMaxReconsumeTimes(asked.get("retries").getAsInt());
        }
        if (asked.has("assigned")) { // the broker divides the queues, and says whether they are popped; only newer clients
            DefaultMQPushConsumer.class.getMethod("setClientRebalance", boolean.class).invoke(made, false);
        }
        if (asked.has("orderly")) {
            made.setSuspendCurrentQueueTimeMillis(100);
            made.registerMessageListener((MessageListenerOrderly) (messages, context) -> told(name, messages)
                ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            made.registerMessageListener((MessageListenerConcurrently) (messages, context) -> told(name, messages)
                ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER);
        }
        made.start();
        pushed.put(name, made);
        return true;
    }

    private boolean told(String name, List<MessageExt> messages) {
        boolean well = true;
        for (MessageExt message : messages) {
            Map<String, Object> fields = Told.of(message);
            lines.tell(name, "received", fields);
            String[] words = fields.get("body").toString().split(" ");
            well &= !words[0].equals("ask") || requests.reply(words, message);
            well &= !words[0].equals("fail") || message.getReconsumeTimes() >= Integer.parseInt(words[1]);
        }
        return well;
    }

    Object lite(JsonObject asked) throws Exception {
        DefaultLitePullConsumer made = new DefaultLitePullConsumer(text(asked, "group"), Driver.hook(asked));
        Driver.configure(made, asked);
        made.setAutoCommit(asked.get("auto").getAsBoolean());
        made.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        if (asked.has("assign")) {
            made.start();
            lites.put(text(asked, "name"), made);
            made.assign(made.fetchMessageQueues(text(asked, "topic")));
            return true;
        }
        made.subscribe(text(asked, "topic"), text(asked, "filter"));
        made.start();
        lites.put(text(asked, "name"), made);
        return true;
    }

    Object poll(JsonObject asked) {
        return told(lites.get(text(asked, "by")).poll(asked.get("wait_ms").getAsLong()));
    }

    Object seek(JsonObject asked) throws Exception {
        lites.get(text(asked, "by")).seek(queue(asked), asked.get("offset").getAsLong());
        return true;
    }

    Object commit(JsonObject asked) {
        DefaultLitePullConsumer consumer = lites.get(text(asked, "by"));
        try { // the method's name has changed; both write through
            DefaultLitePullConsumer.class.getMethod("commit").invoke(consumer);
        } catch (ReflectiveOperationException older) {
            consumer.commitSync();
        }
        return true;
    }

    Object committed(JsonObject asked) throws Exception {
        return lites.get(text(asked, "by")).committed(queue(asked));
    }

    Object pull(JsonObject asked) throws Exception {
        DefaultMQPullConsumer made = new DefaultMQPullConsumer(text(asked, "group"), Driver.hook(asked));
        Driver.configure(made, asked);
        made.start();
        pulls.put(text(asked, "name"), made);
        List<Integer> found = new ArrayList<>();
        for (MessageQueue queue : made.fetchSubscribeMessageQueues(text(asked, "topic"))) {
            found.add(queue.getQueueId());
        }
        return found;
    }

    /** One pull, and what the broker says about the offsets. */
    Object pulled(JsonObject asked) throws Exception {
        PullResult result = pulls.get(text(asked, "by")).pull(
            queue(asked), text(asked, "filter"), asked.get("offset").getAsLong(), asked.get("max").getAsInt());
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("status", result.getPullStatus().name());
        fields.put("next", result.getNextBeginOffset());
        fields.put("least", result.getMinOffset());
        fields.put("end", result.getMaxOffset());
        fields.put("messages", told(result.getMsgFoundList()));
        return fields;
    }

    /** What no call before this one has read of any queue of a topic. */
    Object pullAll(JsonObject asked) throws Exception {
        String name = text(asked, "name");
        if (!pulls.containsKey(name)) {
            pull(asked);
        }
        List<Object> found = new ArrayList<>();
        for (MessageQueue queue : pulls.get(name).fetchSubscribeMessageQueues(text(asked, "topic"))) {
            PullResult result;
            do {
                result = pulls.get(name).pull(queue, "*", read.getOrDefault(queue, 0L), 32);
                read.put(queue, result.getNextBeginOffset());
                found.addAll(told(result.getMsgFoundList()));
            } while (result.getNextBeginOffset() < result.getMaxOffset());
        }
        return found;
    }

    private static MessageQueue queue(JsonObject asked) {
        return new MessageQueue(text(asked, "topic"), text(asked, "broker"), asked.get("queue").getAsInt());
    }

    private static List<Object> told(List<MessageExt> messages) {
        List<Object> found = new ArrayList<>();
        if (messages != null) {
            for (MessageExt message : messages) {
                found.add(Told.of(message));
            }
        }
        return found;
    }

    void close(String name) {
        if (pushed.containsKey(name)) {
            pushed.remove(name).shutdown();
        } else if (lites.containsKey(name)) {
            lites.remove(name).shutdown();
        } else {
            pulls.remove(name).shutdown();
        }
    }
}
