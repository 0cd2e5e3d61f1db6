"""The work of `amqpd check`: find damage, report it, and repair the rest."""
