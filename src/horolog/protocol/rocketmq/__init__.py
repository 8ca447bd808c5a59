"""What both RocketMQ protocols share: names, properties, tags, the stored message layout."""
