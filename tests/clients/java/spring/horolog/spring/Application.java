package horolog.spring;

import com.google.gson.JsonObject;
import horolog.lines.Lines;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.annotation.RocketMQMessageListener;
import org.apache.rocketmq.client.annotation.RocketMQTransactionListener;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;
import org.apache.rocketmq.client.common.Pair;
import org.apache.rocketmq.client.core.RocketMQClientTemplate;
import org.apache.rocketmq.client.core.RocketMQListener;
import org.apache.rocketmq.client.core.RocketMQTransactionChecker;
import org.springframework.boot.CommandLineRunner;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.annotation.Bean;
import org.springframework.messaging.Message;
import org.springframework.messaging.support.MessageBuilder;
import org.springframework.stereotype.Component;

/**
 * An application with RocketMQ's starter as its guide shows one: the template sends and receives, a listener is pushed
 * to, and a listener of transactions is asked. Where the broker is comes from properties; what to send from lines.
 */
@SpringBootApplication
public class Application {
    public static void main(String[] arguments) {
        Lines lines = new Lines(); // before anything is logged: the output is for lines
        SpringApplication application = new SpringApplication(Application.class);
        application.addInitializers(context -> context.getBeanFactory().registerSingleton("lines", lines));
        application.run(arguments);
    }

    private static Map<String, Object> told(MessageView view) {
        ByteBuffer body = view.getBody();
        byte[] bytes = new byte[body.remaining()];
        body.get(bytes);
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("body", new String(bytes, StandardCharsets.UTF_8));
        fields.put("id", view.getMessageId().toString());
        fields.put("topic", view.getTopic());
        fields.put("tag", view.getTag().orElse(null));
        fields.put("keys", new ArrayList<>(view.getKeys()));
        fields.put("properties", view.getProperties());
        fields.put("attempt", view.getDeliveryAttempt());
        return fields;
    }

    /** Fails the first delivery of a message whose body begins with "fail". */
    private static ConsumeResult taken(Lines lines, String by, MessageView view) {
        Map<String, Object> fields = told(view);
        lines.tell(by, "received", fields);
        boolean fails = fields.get("body").toString().startsWith("fail") && view.getDeliveryAttempt() == 1;
        return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
    }

    /** Of a group that consumes side by side. */
    @Component
    @RocketMQMessageListener(consumerGroup = "spring-push", topic = "spring-push", tag = "*")
    static class Pushed implements RocketMQListener {
        private final Lines lines;

        Pushed(Lines lines) {
            this.lines = lines;
        }

        @Override
        public ConsumeResult consume(MessageView view) {
            return taken(lines, "push", view);
        }
    }

    /** Of a group that consumes in order, of which the broker knows, and with a tag. */
    @Component
    @RocketMQMessageListener(consumerGroup = "spring-steps", topic = "spring-fifo", tag = "step")
    static class Steps implements RocketMQListener {
        private final Lines lines;

        Steps(Lines lines) {
            this.lines = lines;
        }

        @Override
        public ConsumeResult consume(MessageView view) {
            return taken(lines, "steps", view);
        }
    }

    /** Says of a transaction what the first word of the body says. */
    @RocketMQTransactionListener
    static class Checker implements RocketMQTransactionChecker {
        private final Lines lines;

        Checker(Lines lines) {
            this.lines = lines;
        }

        @Override
        public TransactionResolution check(MessageView view) {
            Map<String, Object> fields = told(view);
            lines.tell("template", "checked", fields);
            return TransactionResolution.valueOf(fields.get("body").toString().split(" ")[0]);
        }
    }

    @Bean
    CommandLineRunner serve(Lines lines, RocketMQClientTemplate template) {
        return arguments -> {
            Verbs verbs = new Verbs(template);
            lines.on("send", verbs::send);
            lines.on("transaction", verbs::transaction);
            lines.on("receive", verbs::receive);
            lines.on("ack", verbs::ack);
            lines.serve();
        };
    }

    /** What the template does. */
    private static final class Verbs {
        private final RocketMQClientTemplate template;
        private final Map<String, MessageView> held = new ConcurrentHashMap<>();

        Verbs(RocketMQClientTemplate template) {
            this.template = template;
        }

        Object send(JsonObject asked) throws Exception {
            String topic = asked.get("topic").getAsString();
            String body = asked.get("body").getAsString();
            return sent(asked.get("how").getAsString(), topic, body, asked).getMessageId().toString();
        }

        private SendReceipt sent(String how, String topic, String body, JsonObject asked) throws Exception {
            Message<String> whole = MessageBuilder.withPayload(body).setHeader("OrderId", 17).build();
            switch (how) {
                case "normal":
                    return template.syncSendNormalMessage(topic, body);
                case "message":
                    return template.syncSendNormalMessage(topic, whole);
                case "async":
                    return template.asyncSendNormalMessage(topic, body, new CompletableFuture<>()).get();
                case "delay":
                    return template.syncSendDelayMessage(
                        topic, body, Duration.ofSeconds(asked.get("delay_s").getAsLong()));
                case "fifo":
                    return template.syncSendFifoMessage(topic, body, asked.get("group").getAsString());
                default:
                    throw new IllegalArgumentException(how);
            }
        }

        /** A message whose transaction ends as `end` says; "": it does not. */
        Object transaction(JsonObject asked) throws Exception {
            Pair<SendReceipt, Transaction> begun = template.sendMessageInTransaction(
                asked.get("topic").getAsString(), asked.get("body").getAsString());
            String end = asked.get("end").getAsString();
            if (end.equals("commit")) {
                begun.getTransaction().commit();
            } else if (end.equals("rollback")) {
                begun.getTransaction().rollback();
            }
            return begun.getSendReceipt().getMessageId().toString();
        }

        Object receive(JsonObject asked) throws Exception {
            List<Object> gave = new ArrayList<>();
            for (MessageView view : template.receive(
                asked.get("max").getAsInt(), Duration.ofMillis(asked.get("invisible_ms").getAsLong()))) {
                Map<String, Object> fields = told(view);
                String token = view.getMessageId() + "/" + view.getDeliveryAttempt();
                held.put(token, view);
                fields.put("token", token);
                gave.add(fields);
            }
            return gave;
        }

        Object ack(JsonObject asked) throws Exception {
            template.ack(held.get(asked.get("token").getAsString()));
            return true;
        }
    }
}
