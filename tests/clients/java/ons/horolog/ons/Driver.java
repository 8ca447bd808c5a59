package horolog.ons;

import com.aliyun.openservices.ons.api.Action;
import com.aliyun.openservices.ons.api.Consumer;
import com.aliyun.openservices.ons.api.Message;
import com.aliyun.openservices.ons.api.MessageSelector;
import com.aliyun.openservices.ons.api.ONSFactory;
import com.aliyun.openservices.ons.api.OnExceptionContext;
import com.aliyun.openservices.ons.api.Producer;
import com.aliyun.openservices.ons.api.PullConsumer;
import com.aliyun.openservices.ons.api.SendCallback;
import com.aliyun.openservices.ons.api.SendResult;
import com.aliyun.openservices.ons.api.batch.BatchConsumer;
import com.aliyun.openservices.ons.api.order.OrderAction;
import com.aliyun.openservices.ons.api.order.OrderConsumer;
import com.aliyun.openservices.ons.api.order.OrderProducer;
import com.aliyun.openservices.ons.api.transaction.TransactionProducer;
import com.aliyun.openservices.ons.api.transaction.TransactionStatus;
import com.google.gson.JsonObject;
import horolog.lines.Lines;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import java.util.function.Predicate;

/**
 * Alibaba Cloud's client of 4.x. Each client has the properties it is asked for; consumers fail the first delivery of
 * a message whose body begins with "fail", and transactions that are asked for end as the first word of the body says.
 */
public final class Driver {
    private final Lines lines = new Lines();
    private Producer producer;
    private OrderProducer inOrder;
    private TransactionProducer transactions;
    private PullConsumer pull;

    private Driver() {
        lines.on("produce", this::produce);
        lines.on("consume", this::consume);
        lines.on("send", this::send);
        lines.on("transaction", this::transaction);
        lines.on("pull", this::pull);
    }

    public static void main(String[] arguments) throws Exception {
        new Driver().lines.serve();
    }

    private static String text(JsonObject asked, String field) {
        return asked.get(field).getAsString();
    }

    private static Properties properties(JsonObject asked, String group) {
        Properties made = new Properties();
        asked.getAsJsonObject("properties").entrySet().forEach(
            each -> made.setProperty(each.getKey(), each.getValue().getAsString()));
        made.setProperty("GROUP_ID", group);
        return made;
    }

    private Object produce(JsonObject asked) {
        producer = ONSFactory.createProducer(properties(asked, "GID_sends"));
        inOrder = ONSFactory.createOrderProducer(properties(asked, "GID_sends_in_order"));
        transactions = ONSFactory.createTransactionProducer(properties(asked, "GID_trades"), message -> {
            lines.tell("checks", "checked", told(message));
            return status(body(message).split(" ")[0]);
        });
        producer.start();
        inOrder.start();
        transactions.start();
        return true;
    }

    private Object consume(JsonObject asked) {
        String how = text(asked, "how");
        String topic = text(asked, "topic");
        String filter = text(asked, "filter");
        Properties properties = properties(asked, "GID_" + how);
        Predicate<Message> taken = message -> {
            lines.tell(how, "received", told(message));
            return !body(message).startsWith("fail") || message.getReconsumeTimes() > 0;
        };
        if (how.equals("order")) {
            OrderConsumer made = ONSFactory.createOrderedConsumer(properties);
            made.subscribe(topic, filter, (message, context) ->
                taken.test(message) ? OrderAction.Success : OrderAction.Suspend);
            made.start();
        } else if (how.equals("batch")) {
            BatchConsumer made = ONSFactory.createBatchConsumer(properties);
            made.subscribe(topic, filter, (messages, context) -> {
                lines.tell(how, "received", Map.of("count", messages.size()));
                return Action.CommitMessage;
            });
            made.start();
        } else {
            Consumer made = ONSFactory.createConsumer(properties);
            made.subscribe(topic, how.equals("sql") ? MessageSelector.bySql(filter) : MessageSelector.byTag(filter),
                (message, context) -> taken.test(message) ? Action.CommitMessage : Action.ReconsumeLater);
            made.start();
        }
        return true;
    }

    private Object send(JsonObject asked) throws Exception {
        Message message = message(asked);
        if (asked.has("deliver_at_ms")) {
            message.setStartDeliverTime(asked.get("deliver_at_ms").getAsLong());
        }
        switch (text(asked, "how")) {
            case "order":
                return inOrder.send(message, "order-17").getMessageId();
            case "oneway":
                producer.sendOneway(message);
                return true;
            case "async":
                CompletableFuture<String> sent = new CompletableFuture<>();
                producer.sendAsync(message, new SendCallback() {
                    @Override
                    public void onSuccess(SendResult result) {
                        sent.complete(result.getMessageId());
                    }

                    @Override
                    public void onException(OnExceptionContext context) {
                        sent.completeExceptionally(context.getException());
                    }
                });
                return sent.get();
            default:
                return producer.send(message).getMessageId();
        }
    }

    private Object transaction(JsonObject asked) {
        String end = text(asked, "end");
        try {
            return transactions.send(message(asked), (message, argument) -> status(end), null).getMessageId();
        } catch (RuntimeException raised) { // so does this client when the transaction is rolled back
            if (status(end) != TransactionStatus.RollbackTransaction) {
                throw raised;
            }
            return raised.getMessage();
        }
    }

    /** Everything of a topic. */
    private Object pull(JsonObject asked) {
        if (pull == null) {
            pull = ONSFactory.createPullConsumer(properties(asked, "GID_pull"));
            pull.start();
            pull.assign(pull.topicPartitions(text(asked, "topic")));
        }
        List<Object> gave = new ArrayList<>();
        pull.poll(1_000).forEach(message -> gave.add(told(message)));
        pull.commitSync();
        return gave;
    }

    private static TransactionStatus status(String end) {
        if (end.equalsIgnoreCase("commit")) {
            return TransactionStatus.CommitTransaction;
        }
        return end.equalsIgnoreCase("rollback") ? TransactionStatus.RollbackTransaction : TransactionStatus.Unknow;
    }

    private static Message message(JsonObject asked) {
        Message made = new Message(text(asked, "topic"), asked.has("tag") ? text(asked, "tag") : "a", "key-1",
            text(asked, "body").getBytes(StandardCharsets.UTF_8));
        made.putUserProperties("OrderId", "17");
        return made;
    }

    private static String body(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    private static Map<String, Object> told(Message message) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("body", body(message));
        fields.put("topic", message.getTopic());
        fields.put("tag", message.getTag());
        fields.put("key", message.getKey());
        fields.put("id", message.getMsgID());
        fields.put("retries", message.getReconsumeTimes());
        fields.put("deliver_at_ms", message.getStartDeliverTime());
        fields.put("group", message.getShardingKey());
        fields.put("order_id", message.getUserProperties("OrderId"));
        return fields;
    }
}
