%% Names, paths and source text: what each form of them becomes.
-module(wasmtime_text_tests).
-include_lib("eunit/include/eunit.hrl").

name_test() ->
    [?assertEqual({Given, {ok, Name}}, {Given, wasmtime_text:name(Given)})
     || {Given, Name} <- [{<<>>, <<>>}, {"", <<>>}, {<<"abc">>, <<"abc">>}, {"abc", <<"abc">>},
                          {[<<"a">>, "b", [$c]], <<"abc">>}, {<<"ü"/utf8>>, <<"ü"/utf8>>},
                          {"ü", <<"ü"/utf8>>}, {"日本", <<"日本"/utf8>>},
                          {binary_to_list(<<"日本"/utf8>>), <<"日本"/utf8>>},
                          {[<<"日"/utf8>>, "本"], <<"日本"/utf8>>}]],
    [?assertEqual({Bad, error}, {Bad, wasmtime_text:name(Bad)})
     || Bad <- [<<0>>, [0], <<"a", 0, "b">>, "a\0", <<"ü"/utf8, 0>>, <<255>>, [16#D800], [-1],
                [a], ["a" | b], a, 1, 1.0, {}, #{}, <<1:4>>, [[[0]]]]].

path_test() ->
    ?assertEqual({ok, <<"a", 255>>}, wasmtime_text:path(<<"a", 255>>)),
    ?assertEqual({ok, <<"ü"/utf8>>}, wasmtime_text:path("ü")),
    [?assertEqual({Bad, error}, {Bad, wasmtime_text:path(Bad)})
     || Bad <- [<<>>, "", <<"a", 0>>, "a\0b", a, [a]]].

source_test() ->
    ?assertEqual({ok, <<"(module)">>}, wasmtime_text:source(["(mod", <<"ule)">>])),
    ?assertEqual({ok, <<"a", 0>>}, wasmtime_text:source("a\0")),
    ?assertEqual(error, wasmtime_text:source(<<255>>)),
    ?assertEqual(error, wasmtime_text:source([a])).
